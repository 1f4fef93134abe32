#version 450
// Copies many ranges by their device addresses, 16 bytes at a time. Any buffers, one dispatch.
//
// A workgroup copies one tile. The host tells for each range the number of its first tile, and for
// every 16th tile the range that it is in, so that a table is as long as there are ranges.
//
// Build: glslc --target-env=vulkan1.2 -O gather.comp -o gather.spv
// Built by: shaderc 2023.2-1 (with that one, `cargo xtask tidy` builds it again and compares)
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(local_size_x = 256) in;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Source {
    uvec4 at[];
};

layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Target {
    uvec4 at[];
};

struct Move {
    uvec2 source;
    uvec2 target;
    uint vectors;
    uint first; // its first tile
    uint unused0;
    uint unused1;
};

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Moves {
    Move at[];
};

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Signs {
    uint at[];
};

layout(push_constant) uniform Push {
    uvec2 moves;
    uvec2 signs;
    uint tiles;
    uint tile; // vectors of a tile
};

const uint THREADS = 256;
// Tiles from one sign to the next; the same number is in `by_address.rs`.
const uint STEP = 16;

void main() {
    uint number = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (number >= tiles) {
        return;
    }
    // The last range whose first tile is not behind this one.
    uint low = Signs(signs).at[number / STEP];
    uint high = Signs(signs).at[number / STEP + 1];
    while (low < high) {
        uint middle = (low + high + 1) / 2;
        if (Moves(moves).at[middle].first <= number) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Move move = Moves(moves).at[low];
    Source source = Source(move.source);
    Target target = Target(move.target);
    uint begin = (number - move.first) * tile;
    uint end = min(begin + tile, move.vectors);
    uint i = begin + gl_LocalInvocationIndex;
    // Four loads in flight per thread keep the memory busy.
    for (; i + 3 * THREADS < end; i += 4 * THREADS) {
        uvec4 a = source.at[i];
        uvec4 b = source.at[i + THREADS];
        uvec4 c = source.at[i + 2 * THREADS];
        uvec4 d = source.at[i + 3 * THREADS];
        target.at[i] = a;
        target.at[i + THREADS] = b;
        target.at[i + 2 * THREADS] = c;
        target.at[i + 3 * THREADS] = d;
    }
    for (; i < end; i += THREADS) {
        target.at[i] = source.at[i];
    }
}
