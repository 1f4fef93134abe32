// The built-in kernels: fill_pattern, verify, checksum and gather.
//
// They compute what core/src/device/pattern.rs defines. All work is cut into tiles of 32 KiB; a
// table of entries says which tiles belong to which region, and each block of threads takes every
// gridDim.x-th tile. Offsets and counts are 64 bit, so regions above 4 GiB are exact.
//
// builtin.ptx is made from this file by build_ptx.py, beside it.

typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 32768ull
#define THREADS 256u

// 32 bytes. Regions: address, bytes, seed. Copies: source, bytes, destination.
struct Entry {
    u64 address;
    u64 bytes;
    u64 extra;
    u64 first_tile;
};

static __device__ __forceinline__ u32 mix(u32 x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return x;
}

static __device__ __forceinline__ u32 pattern(u64 seed, u64 index) {
    u32 low = (u32)seed ^ ((u32)index * 0x9E3779B1u);
    u32 high = (u32)(seed >> 32) + (u32)(index >> 32) * 0x85EBCA6Bu;
    return mix(low ^ high);
}

static __device__ __forceinline__ void add_term(u32 value, u64 index, u32* low, u32* high) {
    u32 place = mix((u32)index ^ ((u32)(index >> 32) * 0x85EBCA6Bu));
    u32 turned = (place << 16) | (place >> 16);
    *low += mix(value ^ place);
    *high += mix((value + 0x5BD1E995u) ^ turned);
}

// The last entry whose first tile is not after `tile`. A warp asks 32 places at a time, so
// 65,536 entries take four rounds; all warps of a block ask the same and hit the same cache lines.
static __device__ __forceinline__ u32 find(const Entry* table, u32 count, u64 tile) {
    u32 lane = threadIdx.x & 31u;
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 step = (high - low + 31u) / 32u;
        u64 probe = (u64)low + (u64)lane * step;
        bool before = probe < high && table[probe].first_tile <= tile;
        u32 votes = __popc(__ballot_sync(0xFFFFFFFFu, before));
        low += (votes - 1u) * step;
        high = min(high, low + step);
    }
    return low;
}

// Accesses to global memory: the addresses come from the table as numbers, so without these the
// compiler would have to use slower generic accesses.
static __device__ __forceinline__ uint4 load16(u64 address) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address) : "memory");
    return v;
}

static __device__ __forceinline__ void store16(u64 address, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

static __device__ __forceinline__ u32 load4(u64 address) {
    u32 v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}

static __device__ __forceinline__ void store4(u64 address, u32 v) {
    asm volatile("st.global.u32 [%0], %1;" :: "l"(address), "r"(v) : "memory");
}

// What one tile covers: the entry, the byte offset in it, and how many bytes.
struct Tile {
    u32 entry;
    u64 address;
    u64 extra;
    u64 offset;
    u32 bytes;
};

static __device__ __forceinline__ Tile locate(const Entry* table, u32 count, u64 number) {
    Tile tile;
    tile.entry = find(table, count, number);
    Entry entry = table[tile.entry];
    tile.offset = (number - entry.first_tile) * TILE;
    tile.address = entry.address;
    tile.extra = entry.extra;
    tile.bytes = (u32)min(TILE, entry.bytes - tile.offset);
    return tile;
}

static __device__ __forceinline__ bool aligned16(u64 address) {
    return (address & 15ull) == 0;
}

// The sum over a warp, the same in every lane. (sm_75 has no instruction for it.)
static __device__ __forceinline__ u32 warp_sum(u32 value) {
    for (u32 step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
terrane_fill_pattern(const Entry* table, u64 tiles, u32 count) {
    for (u64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile = locate(table, count, number);
        u64 words = tile.address + tile.offset;
        u64 first = tile.offset / 4;
        u32 n = tile.bytes / 4;
        u32 vectors = aligned16(words) ? n / 4 : 0;
        for (u32 i = threadIdx.x; i < vectors; i += THREADS) {
            u64 at = first + (u64)i * 4;
            uint4 value = make_uint4(pattern(tile.extra, at), pattern(tile.extra, at + 1),
                                     pattern(tile.extra, at + 2), pattern(tile.extra, at + 3));
            store16(words + (u64)i * 16, value);
        }
        for (u32 i = vectors * 4 + threadIdx.x; i < n; i += THREADS) {
            store4(words + (u64)i * 4, pattern(tile.extra, first + i));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
terrane_verify(const Entry* table, u64 tiles, u32 count, u64* results) {
    for (u64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile = locate(table, count, number);
        u64 words = tile.address + tile.offset;
        u64 first = tile.offset / 4;
        u32 n = tile.bytes / 4;
        u32 vectors = aligned16(words) ? n / 4 : 0;
        u32 wrong = 0;
        for (u32 i = threadIdx.x; i < vectors; i += THREADS) {
            u64 at = first + (u64)i * 4;
            uint4 value = load16(words + (u64)i * 16);
            wrong += value.x != pattern(tile.extra, at);
            wrong += value.y != pattern(tile.extra, at + 1);
            wrong += value.z != pattern(tile.extra, at + 2);
            wrong += value.w != pattern(tile.extra, at + 3);
        }
        for (u32 i = vectors * 4 + threadIdx.x; i < n; i += THREADS) {
            wrong += load4(words + (u64)i * 4) != pattern(tile.extra, first + i);
        }
        wrong = warp_sum(wrong);
        if ((threadIdx.x & 31u) == 0 && wrong != 0) {
            atomicAdd(&results[tile.entry], (u64)wrong);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
terrane_checksum(const Entry* table, u64 tiles, u32 count, u64* results) {
    for (u64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile = locate(table, count, number);
        u64 words = tile.address + tile.offset;
        u64 first = tile.offset / 4;
        u32 n = tile.bytes / 4;
        u32 vectors = aligned16(words) ? n / 4 : 0;
        u32 low = 0, high = 0;
        for (u32 i = threadIdx.x; i < vectors; i += THREADS) {
            u64 at = first + (u64)i * 4;
            uint4 value = load16(words + (u64)i * 16);
            add_term(value.x, at, &low, &high);
            add_term(value.y, at + 1, &low, &high);
            add_term(value.z, at + 2, &low, &high);
            add_term(value.w, at + 3, &low, &high);
        }
        for (u32 i = vectors * 4 + threadIdx.x; i < n; i += THREADS) {
            add_term(load4(words + (u64)i * 4), first + i, &low, &high);
        }
        low = warp_sum(low);
        high = warp_sum(high);
        if ((threadIdx.x & 31u) == 0) {
            u32* result = (u32*)&results[tile.entry];
            atomicAdd(result, low);
            atomicAdd(result + 1, high);
        }
    }
}

// Full tiles are 2,048 vectors: eight for each thread, all loaded before the first is stored.
extern "C" __global__ void __launch_bounds__(THREADS)
terrane_gather(const Entry* table, u64 tiles, u32 count) {
    for (u64 number = blockIdx.x; number < tiles; number += gridDim.x) {
        Tile tile = locate(table, count, number);
        u64 from = tile.address + tile.offset;
        u64 to = tile.extra + tile.offset;
        if (tile.bytes == TILE) {
            uint4 values[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                values[i] = load16(from + (threadIdx.x + i * THREADS) * 16u);
            }
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                store16(to + (threadIdx.x + i * THREADS) * 16u, values[i]);
            }
        } else {
            for (u32 i = threadIdx.x; i < tile.bytes / 16; i += THREADS) {
                store16(to + (u64)i * 16, load16(from + (u64)i * 16));
            }
        }
    }
}
