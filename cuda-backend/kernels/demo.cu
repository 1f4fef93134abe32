// Kernels for the demo and for examples: what a user's own CUDA C looks like here.
//
// Parameters are the bindings' addresses in order, then the push data.
// demo.ptx is made from this file by build_ptx.py, beside it.

typedef unsigned int u32;

// c[i] = a[i] + b[i] for i < n. Groups of 256 threads, one element each.
extern "C" __global__ void terrane_vector_add(const float* a, const float* b, float* c, u32 n) {
    u32 i = blockIdx.x * 256u + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

#define SIDE 16u

// C = A * B, all n by n, row by row. Groups of 16 by 16 threads, one element each; each group
// keeps a tile of A and one of B in shared memory.
extern "C" __global__ void terrane_matmul(const float* a, const float* b, float* c, u32 n) {
    __shared__ float left[SIDE][SIDE], right[SIDE][SIDE];
    u32 x = threadIdx.x, y = threadIdx.y;
    u32 column = blockIdx.x * SIDE + x, row = blockIdx.y * SIDE + y;
    float sum = 0.0f;
    for (u32 k = 0; k < n; k += SIDE) {
        left[y][x] = row < n && k + x < n ? a[(size_t)row * n + k + x] : 0.0f;
        right[y][x] = k + y < n && column < n ? b[(size_t)(k + y) * n + column] : 0.0f;
        __syncthreads();
        for (u32 i = 0; i < SIDE; i++) {
            sum += left[y][i] * right[i][x];
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        c[(size_t)row * n + column] = sum;
    }
}

// Adds the sum of n floats to *out. Groups of 256 threads, any number of them.
extern "C" __global__ void terrane_sum(const float* values, float* out, u32 n) {
    __shared__ float parts[8];
    float sum = 0.0f;
    for (size_t i = blockIdx.x * 256u + threadIdx.x; i < n; i += (size_t)gridDim.x * 256u) {
        sum += values[i];
    }
    for (u32 step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, step);
    }
    if ((threadIdx.x & 31u) == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 i = 1; i < 8; i++) {
            sum += parts[i];
        }
        atomicAdd(out, sum);
    }
}
