/* A CUDA driver without a GPU: it counts what it is asked for, and computes it if it has kernels.
 *
 * A program that was built with the `cuda` feature runs on it as on a device: memory is the host's,
 * copies are made, and kernels and products leave zeros behind. So every launch, copy and
 * allocation of a training step can be counted on any machine, and that all of them are queued on
 * one stream, by one thread, can be seen. Numbers that come back mean nothing.
 *
 * With COUNTING_GPU_KERNELS, a library of kernels that were compiled for the host (host_gpu), it
 * runs them and multiplies, slowly: results are those of a GPU but for roundings. A kernel that the
 * library lacks is an error. `compute.sh` runs a program so.
 *
 * The counts are written to the file that COUNTING_GPU names when the program ends. `build.sh`
 * builds it, `count.py` counts. COUNTING_GPU_MEMORY is how many bytes the device has; with
 * COUNTING_GPU_NUMBERS, numbers that a search can go on with are read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
typedef int Status; /* 0 is success in every one of the interfaces */
typedef void *Handle;
typedef uint64_t Pointer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t launches, products, uploads, uploaded, reads, read, copies, copied, fills, allocations,
        allocated, in_use, most, height, events;
} counts;

/* Streams and threads that have queued work. */
static Handle streams[16];
static pthread_t threads[16];
static int stream_count, thread_count;

/* Kernels by name. */
struct Function { char name[96]; uint64_t launches; };
static struct Function functions[4096];
static int function_count;

static void note(Handle stream) {
    int i;
    for (i = 0; i < stream_count && streams[i] != stream; i++) {}
    if (i == stream_count && i < 16) streams[stream_count++] = stream;
    for (i = 0; i < thread_count && !pthread_equal(threads[i], pthread_self()); i++) {}
    if (i == thread_count && i < 16) threads[thread_count++] = pthread_self();
}

/* Runs a kernel by name; 0 if there is one. */
typedef int RunKernel(const char *name, const unsigned grid[3], const unsigned size[3],
                      void **arguments);
static RunKernel *run_kernel(void) {
    static RunKernel *found;
    const char *path = getenv("COUNTING_GPU_KERNELS");
    if (found || !path) return found;
    void *library = dlopen(path, RTLD_NOW);
    if (library) found = (RunKernel *)dlsym(library, "run_kernel");
    if (!found) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        exit(2);
    }
    return found;
}

#define COUNTED(stream, work) \
    do { pthread_mutex_lock(&lock); note(stream); work; pthread_mutex_unlock(&lock); } while (0)

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("COUNTING_GPU");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file,
            "launches %lu\nproducts %lu\nfills %lu\nuploads %lu\nuploaded %lu\nreads %lu\n"
            "read %lu\ncopies %lu\ncopied %lu\nallocations %lu\nallocated %lu\nmost %lu\n"
            "events %lu\nstreams %d\nthreads %d\n",
            counts.launches, counts.products, counts.fills, counts.uploads, counts.uploaded,
            counts.reads, counts.read, counts.copies, counts.copied, counts.allocations,
            counts.allocated, counts.most, counts.events, stream_count, thread_count);
    for (int i = 0; i < function_count; i++)
        if (functions[i].launches)
            fprintf(file, "kernel %s %lu\n", functions[i].name, functions[i].launches);
    fclose(file);
}

/* Device and context. */
API Status cuInit(unsigned flags) { return 0; }
API Status cuDriverGetVersion(int *version) { *version = 13000; return 0; }
API Status cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
API Status cuDeviceGetCount(int *count) { *count = 1; return 0; }
API Status cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "counting device");
    return 0;
}
API Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    /* Compute capability 9.0; memory pools; nothing else is asked for that matters. */
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : 1;
    if (attribute == 8 || attribute == 97) *value = 232448;
    if (attribute == 1) *value = 1024;
    return 0;
}
API Status cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 80ull << 30; return 0; }
static size_t capacity(void) {
    const char *text = getenv("COUNTING_GPU_MEMORY");
    return text ? strtoull(text, NULL, 10) : 80ull << 30;
}
API Status cuMemGetInfo_v2(size_t *available, size_t *total) {
    *total = capacity();
    *available = *total > counts.in_use ? *total - counts.in_use : 0;
    return 0;
}
/* The pool that memory comes from: all that it holds is in use. */
static int pool;
API Status cuDeviceGetDefaultMemPool(Handle *out, int device) { *out = &pool; return 0; }
API Status cuMemPoolGetAttribute(Handle in, int attribute, void *value) {
    /* What it holds now is 5, what of it is in use 7, and the most that was 8. */
    *(uint64_t *)value = attribute == 8 ? counts.height : attribute >= 5 ? counts.in_use : 0;
    return 0;
}
API Status cuMemPoolSetAttribute(Handle in, int attribute, void *value) {
    if (attribute == 8) counts.height = counts.in_use;
    return 0;
}
static int context, module;
API Status cuDevicePrimaryCtxRetain(Handle *out, int device) { *out = &context; return 0; }
API Status cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
API Status cuCtxGetCurrent(Handle *out) { *out = &context; return 0; }
API Status cuCtxSetCurrent(Handle in) { return 0; }
API Status cuCtxSynchronize(void) { return 0; }
API Status cuCtxGetDevice(int *device) { *device = 0; return 0; }
API Status cuGetErrorName(Status status, const char **text) {
    *text = status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return 0;
}
API Status cuGetErrorString(Status status, const char **text) {
    *text = status == 2 ? "out of memory" : "an error of the counting device";
    return 0;
}

/* Streams and events. */
API Status cuStreamCreate(Handle *out, unsigned flags) { *out = malloc(1); return 0; }
API Status cuStreamDestroy_v2(Handle stream) { return 0; }
API Status cuStreamSynchronize(Handle stream) { return 0; }
API Status cuStreamIsCapturing(Handle stream, int *status) { *status = 0; return 0; }
API Status cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) { return 0; }
API Status cuEventCreate(Handle *out, unsigned flags) {
    COUNTED(NULL, counts.events++);
    *out = malloc(1);
    return 0;
}
API Status cuEventDestroy_v2(Handle event) { free(event); return 0; }
API Status cuEventRecord(Handle event, Handle stream) { return 0; }
API Status cuEventSynchronize(Handle event) { return 0; }
API Status cuEventQuery(Handle event) { return 0; }

/* Memory: pages that nobody writes to are never there. */
static Status allocate(Pointer *out, size_t bytes) {
    if (counts.in_use + bytes > capacity()) return 2;
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory) return 2;
    *out = (Pointer)memory;
    counts.allocations++;
    counts.allocated += bytes;
    counts.in_use += malloc_usable_size(memory);
    if (counts.in_use > counts.most) counts.most = counts.in_use;
    if (counts.in_use > counts.height) counts.height = counts.in_use;
    return 0;
}
API Status cuMemAllocAsync(Pointer *out, size_t bytes, Handle stream) {
    Status status;
    COUNTED(stream, status = allocate(out, bytes));
    return status;
}
API Status cuMemFreeAsync(Pointer pointer, Handle stream) {
    COUNTED(stream, counts.in_use -= malloc_usable_size((void *)pointer));
    free((void *)pointer);
    return 0;
}
API Status cuMemAlloc_v2(Pointer *out, size_t bytes) { return cuMemAllocAsync(out, bytes, NULL); }
API Status cuMemFree_v2(Pointer pointer) { return cuMemFreeAsync(pointer, NULL); }
API Status cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, Handle stream) {
    COUNTED(stream, (counts.uploads++, counts.uploaded += bytes));
    memcpy((void *)to, from, bytes);
    return 0;
}
/* A search needs tokens that differ, and that are none of the four special ones. */
static void number(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = 4 + i % 1021;
}
API Status cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, Handle stream) {
    COUNTED(stream, (counts.reads++, counts.read += bytes));
    memcpy(to, (void *)from, bytes);
    if (getenv("COUNTING_GPU_NUMBERS")) number(to, bytes / sizeof(float));
    return 0;
}
API Status cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Handle stream) {
    COUNTED(stream, (counts.copies++, counts.copied += bytes));
    memmove((void *)to, (void *)from, bytes);
    return 0;
}
API Status cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Handle stream) {
    COUNTED(stream, counts.fills++);
    memset((void *)to, value, bytes);
    return 0;
}

/* Kernels. */
API Status cuModuleLoadData(Handle *out, const void *image) {
    /* Machine code for several GPUs begins with these bytes, at an address for numbers of 64 bits;
     * PTX is text. */
    const unsigned char *bytes = image;
    int is_binary = !memcmp(bytes, "\x50\xed\x55\xba", 4) && !((uintptr_t)image % 8);
    if (!is_binary && !strstr((const char *)bytes, ".version")) return 200;
    *out = &module;
    return 0;
}
API Status cuModuleUnload(Handle in) { return 0; }
API Status cuModuleGetFunction(Handle *out, Handle in, const char *name) {
    int i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < function_count && strcmp(functions[i].name, name); i++) {}
    if (i == function_count && i < 4096)
        snprintf(functions[function_count++].name, sizeof functions->name, "%s", name);
    pthread_mutex_unlock(&lock);
    *out = &functions[i];
    return 0;
}
API Status cuFuncSetAttribute(Handle function, int attribute, int value) { return 0; }
API Status cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, Handle stream, void **values,
                          void **extra) {
    struct Function *called = function;
    COUNTED(stream, (counts.launches++, called->launches++));
    unsigned grid[3] = {gx, gy, gz}, size[3] = {bx, by, bz};
    /* What no GPU can launch: an invalid value. */
    if (gx > 0x7fffffff || gy > 0xffff || gz > 0xffff) return 1;
    if (run_kernel() && run_kernel()(called->name, grid, size, values)) {
        fprintf(stderr, "there is no kernel %s on the host\n", called->name);
        return 500;
    }
    return 0;
}

/* cuBLAS: a product leaves what is there, unless there are kernels. */
static Handle blas_stream;
API Status cublasCreate_v2(Handle *out) { *out = malloc(1); return 0; }
API Status cublasDestroy_v2(Handle in) { return 0; }
API Status cublasSetStream_v2(Handle in, Handle stream) { blas_stream = stream; return 0; }
API Status cublasSetWorkspace_v2(Handle in, void *at, size_t bytes) { return 0; }
API Status cublasSetMathMode(Handle in, int mode) { return 0; }

/* The types of cudaDataType_t: f32, f64, f16, bf16. */
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
static double element(const void *at, int type, size_t index) {
    if (type == F64) return ((const double *)at)[index];
    if (type == F32) return ((const float *)at)[index];
    if (type == F16) return ((const _Float16 *)at)[index];
    uint32_t bits = (uint32_t)((const uint16_t *)at)[index] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static void set(void *at, int type, size_t index, double value) {
    if (type == F64) ((double *)at)[index] = value;
    if (type == F32) ((float *)at)[index] = (float)value;
    if (type == F16) ((_Float16 *)at)[index] = (_Float16)(float)value;
    if (type != BF16) return;
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    ((uint16_t *)at)[index] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* C = alpha · op(A) · op(B) + beta · C, of matrices with their columns side by side. */
API Status cublasGemmStridedBatchedEx(Handle in, int transpose_a, int transpose_b, int m, int n,
                                      int k, const void *alpha, const char *a, int type_a, int lda,
                                      long long stride_a, const char *b, int type_b, int ldb,
                                      long long stride_b, const void *beta, char *c, int type_c,
                                      int ldc, long long stride_c, int batch, int compute,
                                      int algorithm) {
    COUNTED(blas_stream, counts.products++);
    if (!run_kernel()) return 0;
    /* Factors have the type that is computed in: 64 and 65 are f16, 70 and 71 f64, others f32. */
    int factor = compute == 64 || compute == 65 ? F16 : compute == 70 || compute == 71 ? F64 : F32;
    double times = element(alpha, factor, 0), kept = element(beta, factor, 0);
    double *row = malloc(sizeof *row * (k ? k : 1));
    for (long long one = 0; one < batch; one++)
        for (int i = 0; i < m; i++) {
            for (int l = 0; l < k; l++)
                row[l] = element(a, type_a, one * stride_a + (transpose_a ? (size_t)i * lda + l
                                                                          : (size_t)l * lda + i));
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int l = 0; l < k; l++)
                    sum += row[l] * element(b, type_b, one * stride_b +
                                                           (transpose_b ? (size_t)l * ldb + j
                                                                        : (size_t)j * ldb + l));
                size_t at = one * stride_c + (size_t)j * ldc + i;
                double before = kept == 0 ? 0 : kept * element(c, type_c, at);
                set(c, type_c, at, times * sum + before);
            }
        }
    free(row);
    return 0;
}
API Status cublasGemmEx(Handle in, int transpose_a, int transpose_b, int m, int n, int k,
                        const void *alpha, const char *a, int type_a, int lda, const char *b,
                        int type_b, int ldb, const void *beta, char *c, int type_c, int ldc,
                        int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(in, transpose_a, transpose_b, m, n, k, alpha, a, type_a, lda,
                                      0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute,
                                      algorithm);
}
API Status cublasSgemmStridedBatched() { COUNTED(blas_stream, counts.products++); return 0; }
API Status cublasDgemmStridedBatched() { COUNTED(blas_stream, counts.products++); return 0; }
API Status cublasHgemmStridedBatched() { COUNTED(blas_stream, counts.products++); return 0; }

/* cuRAND, which nothing here draws from. */
API Status curandCreateGenerator(Handle *out, int kind) { *out = malloc(1); return 0; }
API Status curandDestroyGenerator(Handle in) { return 0; }
API Status curandSetStream(Handle in, Handle stream) { return 0; }
API Status curandSetPseudoRandomGeneratorSeed(Handle in, unsigned long long seed) { return 0; }

/* What statically compiled kernels register when a program starts. */
API Handle *__cudaRegisterFatBinary(void *binary) { static Handle handle; return &handle; }
API void __cudaRegisterFatBinaryEnd(Handle *handle) {}
API void __cudaUnregisterFatBinary(Handle *handle) {}
API void __cudaRegisterFunction() {}
API void __cudaRegisterVar() {}

/* What the program is linked with and never calls here. */
#define NEVER(name) API Status name() { fprintf(stderr, #name " is not counted\n"); return 999; }
NEVER(cuCtxDestroy_v2)
NEVER(cuMemcpyPeerAsync)
NEVER(cuModuleLoad)
NEVER(cudaFuncSetAttribute)
NEVER(cudaGetDevice)
NEVER(__cudaGetKernel)
NEVER(__cudaLaunchKernel_ptsz)
NEVER(__cudaPopCallConfiguration)
NEVER(__cudaPushCallConfiguration)
