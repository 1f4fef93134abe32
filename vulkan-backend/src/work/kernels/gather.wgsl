// Copies many ranges from one binding to another, 16 bytes at a time.

struct Tile {
    source: u32, // first vector, counted from the start of the binding
    goal: u32,
    vectors: u32,
    unused: u32,
}

struct Push {
    tiles: u32,
}

@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> tiles: array<Tile>;
var<immediate> push: Push;

const THREADS: u32 = 256u;

@compute @workgroup_size(256)
fn gather(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number = group.y * groups.x + group.x;
    if number >= push.tiles {
        return;
    }
    let tile = tiles[number];
    for (var i = lane; i < tile.vectors; i += THREADS) {
        destination[tile.goal + i] = source[tile.source + i];
    }
}
