// The rungs `naive` and `tile2d` in OpenCL, with the same tiles, the same edges and the same order
// of operations: C = alpha * A * B + beta * C, row-major, M x K by K x N.

static void store(__global float *c, uint ldc, uint m, uint n, uint row, uint col, float alpha,
                  float beta, float sum) {
    if (row < m && col < n) {
        __global float *at = c + (size_t)row * ldc + col;
        *at = beta == 0.0f ? alpha * sum : fma(beta, *at, alpha * sum);
    }
}

__kernel __attribute__((reqd_work_group_size(NAIVE_BM, NAIVE_BN, 1)))
void naive(uint m, uint n, uint k, float alpha, __global const float *a, uint lda,
           __global const float *b, uint ldb, float beta, __global float *c, uint ldc) {
    uint row = get_global_id(0), col = get_global_id(1);
    if (row >= m || col >= n) {
        return;
    }
    float acc = 0.0f;
    for (size_t i = 0; i < k; i++) {
        acc = fma(a[(size_t)row * lda + i], b[i * ldb + col], acc);
    }
    store(c, ldc, m, n, row, col, alpha, beta, acc);
}

#define BM 128
#define BN 128
#define BK 8
#define TM 8
#define TN 8
#define THREADS_M (BM / TM)
#define THREADS_N (BN / TN)
#define THREADS (THREADS_M * THREADS_N)

static float get(__global const float *x, uint ld, uint rows, uint cols, uint row, uint col) {
    return row < rows && col < cols ? x[(size_t)row * ld + col] : 0.0f;
}

__kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
void tile2d(uint m, uint n, uint k, float alpha, __global const float *a, uint lda,
            __global const float *b, uint ldb, float beta, __global float *c, uint ldc) {
    __local float a_smem[BM * BK], b_smem[BK * BN];
    uint tid = get_local_id(0);
    uint block_row = get_group_id(1) * BM, block_col = get_group_id(0) * BN;
    uint thread_row = tid / THREADS_N, thread_col = tid % THREADS_N;
    float acc[TM][TN];
    for (uint i = 0; i < TM; i++) {
        for (uint j = 0; j < TN; j++) {
            acc[i][j] = 0.0f;
        }
    }
    for (uint k0 = 0; k0 < k; k0 += BK) {
        for (uint y = tid / BK; y < BM; y += THREADS / BK) {
            a_smem[y * BK + tid % BK] = get(a, lda, m, k, block_row + y, k0 + tid % BK);
        }
        for (uint y = tid / BN; y < BK; y += THREADS / BN) {
            b_smem[y * BN + tid % BN] = get(b, ldb, k, n, k0 + y, block_col + tid % BN);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint kk = 0; kk < BK; kk++) {
            float frag_a[TM], frag_b[TN];
            for (uint i = 0; i < TM; i++) {
                frag_a[i] = a_smem[(thread_row + i * THREADS_M) * BK + kk];
            }
            for (uint j = 0; j < TN; j++) {
                frag_b[j] = b_smem[kk * BN + thread_col + j * THREADS_N];
            }
            for (uint i = 0; i < TM; i++) {
                for (uint j = 0; j < TN; j++) {
                    acc[i][j] = fma(frag_a[i], frag_b[j], acc[i][j]);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < TM; i++) {
        for (uint j = 0; j < TN; j++) {
            store(c, ldc, m, n, block_row + thread_row + i * THREADS_M,
                  block_col + thread_col + j * THREADS_N,
                  alpha, beta, acc[i][j]);
        }
    }
}
