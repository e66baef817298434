// CUB's histogram and sum of 2^27 f32 from 0 to 1, and a copy, in turn; medians of 15 batches of 10.
#include <cub/cub.cuh>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>
#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { printf("%s: %s\n", #x, cudaGetErrorString(e)); return 1; } } while (0)
int main() {
    const int n = 1 << 27;
    std::vector<float> host(n);
    unsigned long long state = 1;
    for (int i = 0; i < n; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        host[i] = (float)(state >> 40) / (float)(1ull << 24);
    }
    float *x, *y, *sum; int *counts; void *temp1 = 0, *temp2 = 0; size_t bytes1 = 0, bytes2 = 0;
    CHECK(cudaMalloc(&x, 4ull * n)); CHECK(cudaMalloc(&y, 4ull * n)); CHECK(cudaMalloc(&counts, 1024)); CHECK(cudaMalloc(&sum, 4));
    CHECK(cudaMemcpy(x, host.data(), 4ull * n, cudaMemcpyHostToDevice));
    cub::DeviceHistogram::HistogramEven(temp1, bytes1, x, counts, 257, 0.0f, 1.0f, n);
    cub::DeviceReduce::Sum(temp2, bytes2, x, sum, n);
    CHECK(cudaMalloc(&temp1, bytes1)); CHECK(cudaMalloc(&temp2, bytes2));
    std::function<cudaError_t()> work[3] = {
        [&] { return cub::DeviceHistogram::HistogramEven(temp1, bytes1, x, counts, 257, 0.0f, 1.0f, n); },
        [&] { return cub::DeviceReduce::Sum(temp2, bytes2, x, sum, n); },
        [&] { return cudaMemcpyAsync(y, x, 4ull * n, cudaMemcpyDeviceToDevice); },
    };
    const char *names[3] = {"CUB histogram", "CUB sum", "copy"};
    double moved[3] = {4.0 * n, 4.0 * n, 8.0 * n};
    std::vector<float> times[3];
    cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
    for (int batch = 0; batch < 15; ++batch)
        for (int i = 0; i < 3; ++i) {
            float ms;
            cudaEventRecord(a);
            for (int j = 0; j < 10; ++j) CHECK(work[i]());
            cudaEventRecord(b); CHECK(cudaEventSynchronize(b));
            cudaEventElapsedTime(&ms, a, b);
            times[i].push_back(ms / 10);
        }
    for (int i = 0; i < 3; ++i) {
        std::sort(times[i].begin(), times[i].end());
        printf("%s: %.4f ms, %.0f GB/s\n", names[i], times[i][7], moved[i] / times[i][7] * 1e-6);
    }
}
