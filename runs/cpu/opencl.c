// Runs a kernel of gemm.cl on the first OpenCL device, checks sampled elements, and prints the time
// of each run in milliseconds, one a line.
//
// usage: opencl GEMM_CL KERNEL SIZE RUNS
// build: cc -O2 opencl.c -lOpenCL -lm -o opencl

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAIVE_B 16

static void need(cl_int code, const char *what) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "%s: OpenCL error %d\n", what, code);
        exit(2);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: opencl GEMM_CL KERNEL SIZE RUNS\n");
        return 2;
    }
    static char source[1 << 16];
    FILE *file = fopen(argv[1], "r");
    if (!file || fread(source, 1, sizeof source - 1, file) == 0) {
        perror(argv[1]);
        return 2;
    }
    const char *name = argv[2], *text = source;
    cl_uint size = atoi(argv[3]);
    int runs = atoi(argv[4]), is_naive = !strcmp(name, "naive");
    size_t count = (size_t)size * size, bytes = count * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes), *c = malloc(bytes);
    srand(42);
    for (size_t i = 0; i < count; i++) {
        a[i] = rand() / (float)RAND_MAX - 0.5f;
        b[i] = rand() / (float)RAND_MAX - 0.5f;
    }
    cl_int code;
    cl_platform_id platform;
    cl_device_id device;
    need(clGetPlatformIDs(1, &platform, NULL), "platform");
    need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    need(code, "context");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    need(code, "queue");
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    need(code, "program");
    char options[64];
    snprintf(options, sizeof options, "-DNAIVE_BM=%d -DNAIVE_BN=%d", NAIVE_B, NAIVE_B);
    need(clBuildProgram(program, 1, &device, options, NULL, NULL), "build");
    cl_kernel kernel = clCreateKernel(program, name, &code);
    need(code, "kernel");
    cl_mem on_a = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, a, &code);
    cl_mem on_b = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, bytes, b, &code);
    cl_mem on_c = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    need(code, "buffers");
    float alpha = 1, beta = 0;
    size_t u = sizeof(cl_uint), f = sizeof(float), p = sizeof(cl_mem);
    size_t sizes[] = {u, u, u, f, p, u, p, u, f, p, u};
    void *values[] = {&size, &size, &size, &alpha, &on_a, &size, &on_b, &size, &beta, &on_c, &size};
    for (int i = 0; i < 11; i++) {
        need(clSetKernelArg(kernel, i, sizes[i], values[i]), "argument");
    }
    size_t tiles = (size + 127) / 128, naive = (size + NAIVE_B - 1) / NAIVE_B * NAIVE_B;
    size_t global[2] = {is_naive ? naive : tiles * 256, is_naive ? naive : tiles};
    size_t local[2] = {is_naive ? NAIVE_B : 256, is_naive ? NAIVE_B : 1};
    for (int run = -1; run < runs; run++) {
        double start = now();
        need(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, local, 0, NULL, NULL), "run");
        need(clFinish(queue), "run");
        // The first run compiles for this work-group size.
        if (run >= 0) {
            printf("%.4f\n", now() - start);
        }
    }
    need(clEnqueueReadBuffer(queue, on_c, CL_TRUE, 0, bytes, c, 0, NULL, NULL), "read");
    for (int sample = 0; sample < 1000; sample++) {
        size_t i = rand() % size, j = rand() % size;
        double sum = 0, scale = 0;
        for (size_t l = 0; l < size; l++) {
            double term = (double)a[i * size + l] * b[l * size + j];
            sum += term;
            scale += fabs(term);
        }
        if (!(fabs(c[i * size + j] - sum) <= scale * size * 6e-8)) {
            fprintf(stderr, "C[%zu, %zu] is %g, not %g\n", i, j, c[i * size + j], sum);
            return 1;
        }
    }
    return 0;
}
