#version 450
// Copies many ranges by their device addresses, 16 bytes at a time. Any buffers, one dispatch.
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

struct Tile {
    uvec2 source;
    uvec2 target;
    uint vectors;
    uint unused0;
    uint unused1;
    uint unused2;
};

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Tiles {
    Tile at[];
};

layout(push_constant) uniform Push {
    uvec2 tiles;
    uint count;
};

const uint THREADS = 256;

void main() {
    uint number = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (number >= count) {
        return;
    }
    Tile tile = Tiles(tiles).at[number];
    Source source = Source(tile.source);
    Target target = Target(tile.target);
    uint i = gl_LocalInvocationIndex;
    // Four loads in flight per thread keep the memory busy.
    for (; i + 3 * THREADS < tile.vectors; i += 4 * THREADS) {
        uvec4 a = source.at[i];
        uvec4 b = source.at[i + THREADS];
        uvec4 c = source.at[i + 2 * THREADS];
        uvec4 d = source.at[i + 3 * THREADS];
        target.at[i] = a;
        target.at[i + THREADS] = b;
        target.at[i + 2 * THREADS] = c;
        target.at[i + 3 * THREADS] = d;
    }
    for (; i < tile.vectors; i += THREADS) {
        target.at[i] = source.at[i];
    }
}
