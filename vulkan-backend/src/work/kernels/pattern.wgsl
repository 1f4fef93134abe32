// The pattern and the checksum of terrane_core::device::pattern, over many ranges at once.
//
// A tile is a piece of a range that one workgroup works on. All lengths come as data: nothing
// here depends on the length of a binding.

struct Tile {
    first: u32,     // first word, counted from the start of the binding
    words: u32,
    seed_low: u32,
    seed_high: u32,
    index_low: u32, // number of the first word in its range; no tile crosses a multiple of 2^32
    index_high: u32,
    slot: u32,      // where its result is added
    unused: u32,
}

struct Push {
    tiles: u32,
}

@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@group(0) @binding(1) var<storage, read> tiles: array<Tile>;
@group(0) @binding(2) var<storage, read_write> results: array<atomic<u32>>;
var<immediate> push: Push;

var<workgroup> first_sum: atomic<u32>;
var<workgroup> second_sum: atomic<u32>;

const THREADS: u32 = 256u;

fn mix(start: u32) -> u32 {
    var x = start;
    x ^= x >> 16u;
    x *= 0x7FEB352Du;
    x ^= x >> 15u;
    x *= 0x846CA68Bu;
    x ^= x >> 16u;
    return x;
}

fn word(tile: Tile, i: u32) -> u32 {
    let low = tile.seed_low ^ ((tile.index_low + i) * 0x9E3779B1u);
    let high = tile.seed_high + tile.index_high * 0x85EBCA6Bu;
    return mix(low ^ high);
}

fn tile_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

@compute @workgroup_size(256)
fn fill(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = tile_number(group, groups);
    if number >= push.tiles {
        return;
    }
    let tile = tiles[number];
    for (var i = lane; i < tile.words; i += THREADS) {
        data[tile.first + i] = word(tile, i);
    }
}

@compute @workgroup_size(256)
fn verify(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = tile_number(group, groups);
    if number >= push.tiles {
        return;
    }
    if lane == 0u {
        atomicStore(&first_sum, 0u);
    }
    workgroupBarrier();
    let tile = tiles[number];
    var wrong = 0u;
    for (var i = lane; i < tile.words; i += THREADS) {
        wrong += select(0u, 1u, data[tile.first + i] != word(tile, i));
    }
    if wrong != 0u {
        atomicAdd(&first_sum, wrong);
    }
    workgroupBarrier();
    if lane == 0u {
        let sum = atomicLoad(&first_sum);
        if sum != 0u {
            atomicAdd(&results[tile.slot], sum);
        }
    }
}

@compute @workgroup_size(256)
fn checksum(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = tile_number(group, groups);
    if number >= push.tiles {
        return;
    }
    if lane == 0u {
        atomicStore(&first_sum, 0u);
        atomicStore(&second_sum, 0u);
    }
    workgroupBarrier();
    let tile = tiles[number];
    var low = 0u;
    var high = 0u;
    for (var i = lane; i < tile.words; i += THREADS) {
        let value = data[tile.first + i];
        let place = mix((tile.index_low + i) ^ (tile.index_high * 0x85EBCA6Bu));
        low += mix(value ^ place);
        high += mix((value + 0x5BD1E995u) ^ ((place << 16u) | (place >> 16u)));
    }
    atomicAdd(&first_sum, low);
    atomicAdd(&second_sum, high);
    workgroupBarrier();
    if lane == 0u {
        atomicAdd(&results[tile.slot * 2u], atomicLoad(&first_sum));
        atomicAdd(&results[tile.slot * 2u + 1u], atomicLoad(&second_sum));
    }
}
