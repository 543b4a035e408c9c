// SPDX-License-Identifier: Apache-2.0
//
// Owns: a plain client of the CUDA runtime, built by nvcc with the static runtime, the shared one,
// and with per-thread default streams.
//
//   plain_runtime verify | fork-before | destructor | reset | calls
//
// Prints the same lines with any allocator. Exit as plain.c. `calls` makes one allocating call of
// each kind, for a trace that shows the resulting driver calls.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

static void must(cudaError_t result, const char *call)
{
    if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
        std::fprintf(stderr, "plain_runtime: %s\n", cudaGetErrorString(result));
        std::exit(77);
    }
    if (result != cudaSuccess) {
        std::printf("%s: %s\n", call, cudaGetErrorName(result));
        std::exit(1);
    }
}
#define MUST(call) must(call, #call)

__global__ static void fill(unsigned *words, size_t count, unsigned value)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        words[i] = value;
    }
}

__global__ static void count_foreign(const unsigned *words, size_t count, unsigned value,
                                     unsigned *out)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (words[i] != value) {
            atomicAdd(out, 1);
        }
    }
}

struct block {
    unsigned *words;
    size_t count;
    unsigned value;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

// Frees right behind the kernels, as a native free allows.
static void verify(const char *name, unsigned operations)
{
    block blocks[64] = {};
    unsigned *out = nullptr, foreign = 0, sum = 0;
    uint64_t random = 7;
    MUST(cudaMalloc(&out, 4));
    MUST(cudaMemset(out, 0, 4));
    for (unsigned i = 1; i <= operations; i++) {
        block *b = &blocks[next_random(&random) % 64];
        if (b->words != nullptr) {
            count_foreign<<<32, 128>>>(b->words, b->count, b->value, out);
            sum = sum * 31 + b->value;
            MUST(cudaFree(b->words));
        }
        b->count = 1 + next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 18));
        b->value = i * 2654435761u;
        MUST(cudaMalloc(&b->words, b->count * 4));
        fill<<<32, 128>>>(b->words, b->count, b->value);
    }
    for (block &b : blocks) {
        if (b.words != nullptr) {
            count_foreign<<<32, 128>>>(b.words, b.count, b.value, out);
            MUST(cudaFree(b.words));
        }
    }
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&foreign, out, 4, cudaMemcpyDeviceToHost));
    MUST(cudaFree(out));
    std::printf("%s: %u blocks, %u foreign words, sum %08x\n", name, operations, foreign, sum);
    std::fflush(stdout);
    if (foreign != 0) {
        std::exit(1);
    }
}

static void fork_before()
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        verify("child", 500);
        std::exit(0);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        std::printf("the child was killed\n");
        std::exit(1);
    }
    std::printf("the child ended with %d\n", WEXITSTATUS(status));
    verify("parent", 500);
}

// A static object that frees in the destructor, as libraries have.
static struct keeper {
    void *block = nullptr;
    ~keeper()
    {
        if (block != nullptr) {
            cudaError_t result = cudaFree(block);
            std::fprintf(stderr, "plain_runtime: 11: cudaFree in a static destructor: %s\n",
                         cudaGetErrorName(result));
            std::printf("free in a static destructor: %s\n",
                        result == cudaSuccess || result == cudaErrorCudartUnloading ? "accepted"
                                                                                    : "refused");
            std::fflush(stdout);
        }
    }
} kept;

static void destructor()
{
    verify("before the end", 500);
    MUST(cudaMalloc(&kept.block, 4096));
}

static void reset()
{
    verify("before the reset", 500);
    MUST(cudaDeviceReset());
    verify("after the reset", 500);
}

// 3. One call of each kind; the trace shows the driver calls.
static void calls()
{
    void *plain, *pitched, *managed, *async, *host, *pinned;
    size_t pitch, free_bytes, total_bytes;
    cudaPitchedPtr cube;
    cudaPointerAttributes attributes;
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    MUST(cudaMalloc(&plain, 4096));
    MUST(cudaMallocPitch(&pitched, &pitch, 100, 100));
    MUST(cudaMalloc3D(&cube, make_cudaExtent(64, 64, 64)));
    MUST(cudaMallocManaged(&managed, 4096));
    MUST(cudaMallocAsync(&async, 4096, 0));
    MUST(cudaHostAlloc(&host, 4096, 0));
    MUST(cudaMallocHost(&pinned, 4096));
    MUST(cudaMallocArray(&array, &format, 64, 64));
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    MUST(cudaPointerGetAttributes(&attributes, plain));
    MUST(cudaFreeArray(array));
    MUST(cudaFreeHost(pinned));
    MUST(cudaFreeHost(host));
    MUST(cudaFreeAsync(async, 0));
    MUST(cudaFree(managed));
    MUST(cudaFree(cube.ptr));
    MUST(cudaFree(pitched));
    MUST(cudaFree(plain));
    std::printf("one call of each\n");
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (std::strcmp(what, "verify") == 0) {
        verify("verify", 2000);
    } else if (std::strcmp(what, "fork-before") == 0) {
        fork_before();
    } else if (std::strcmp(what, "destructor") == 0) {
        destructor();
    } else if (std::strcmp(what, "reset") == 0) {
        reset();
    } else if (std::strcmp(what, "calls") == 0) {
        calls();
    } else {
        std::fprintf(stderr, "usage: plain_runtime verify|fork-before|destructor|reset|calls\n");
        return 2;
    }
    return 0;
}
