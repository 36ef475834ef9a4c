// Blocks of threads on the host: each thread runs until it waits for others, on a stack of its own.
//
// A missing barrier shows, since in every other block threads take their turns from the last to the
// first. Threads that wait for one that has ended, or for a value that no one gives, are an error.

#include "gpu.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host_gpu {
namespace {

constexpr size_t STACK = 64 << 10;

// A meeting of all members that have not ended.
struct Barrier {
    unsigned members = 0, arrived = 0;
    uint64_t generation = 0;

    void release_if_complete() {
        if (members != 0 && arrived == members) {
            arrived = 0;
            generation++;
        }
    }
};

struct Warp {
    Barrier barrier;
    // Values of this exchange and of the one before, which slower threads may still read.
    uint64_t values[2][32], generations[2][32];
};

struct Stack {
    ucontext_t context;
    std::unique_ptr<char[]> memory{new char[STACK]};
    unsigned thread = 0;
    const Barrier *awaited = nullptr;
    uint64_t generation = 0;
};

const Kernels *all = nullptr;
std::mutex one_at_a_time;

const Kernel *kernel;
void **arguments;
unsigned threads, started;
bool is_reversed;
Barrier block;
std::vector<Warp> warps;
std::vector<std::unique_ptr<Stack>> stacks;
Stack *current;
ucontext_t scheduler;

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "kernel %s, block (%u, %u, %u): %s\n", kernel->name, blockIdx.x, blockIdx.y,
            blockIdx.z, what);
    abort();
}

void take_place(unsigned thread) {
    current->thread = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                 thread / blockDim.x / blockDim.y};
}

// Runs threads, one after the other, as long as none waits; then a block's next threads have other
// stacks.
void work() {
    for (;;) {
        while (started < threads) {
            unsigned place = started++;
            take_place(is_reversed ? threads - 1 - place : place);
            kernel->run(arguments);
            Warp &warp = warps[current->thread / 32];
            block.members--;
            warp.barrier.members--;
            block.release_if_complete();
            warp.barrier.release_if_complete();
        }
        swapcontext(&current->context, &scheduler);
    }
}

void resume(Stack &stack) {
    current = &stack;
    stack.awaited = nullptr;
    take_place(stack.thread);
    swapcontext(&scheduler, &stack.context);
}

void wait(Barrier &barrier) {
    uint64_t generation = barrier.generation;
    barrier.arrived++;
    barrier.release_if_complete();
    if (barrier.generation != generation) return;
    current->awaited = &barrier;
    current->generation = generation;
    swapcontext(&current->context, &scheduler);
}

void run_block() {
    started = 0;
    block = Barrier{threads};
    warps.assign((threads + 31) / 32, Warp{});
    for (size_t warp = 0; warp < warps.size(); warp++)
        warps[warp].barrier.members = min(32u, threads - 32 * static_cast<unsigned>(warp));
    for (size_t place = 0; started < threads; place++) {
        if (place == stacks.size()) {
            stacks.push_back(std::make_unique<Stack>());
            ucontext_t &context = stacks.back()->context;
            getcontext(&context);
            context.uc_stack.ss_sp = stacks.back()->memory.get();
            context.uc_stack.ss_size = STACK;
            makecontext(&context, work, 0);
        }
        resume(*stacks[place]);
    }
    while (block.members != 0) {
        bool is_stuck = true;
        for (auto &stack : stacks)
            if (stack->awaited && stack->generation != stack->awaited->generation) {
                is_stuck = false;
                resume(*stack);
            }
        if (is_stuck) fail("threads wait for others that wait elsewhere");
    }
}

}  // namespace

Kernels::Kernels(const Kernel *first, size_t count) : first(first), count(count), next(all) {
    all = this;
}

unsigned lane() { return current->thread % 32; }

uint64_t exchange(uint64_t value, unsigned from) {
    Warp &warp = warps[current->thread / 32];
    uint64_t generation = warp.barrier.generation + 1;
    unsigned side = generation % 2;
    warp.values[side][lane()] = value;
    warp.generations[side][lane()] = generation;
    wait(warp.barrier);
    if (warp.generations[side][from] != generation)
        fail("a thread reads the value of one that does not take part");
    return warp.values[side][from];
}

}  // namespace host_gpu

void __syncthreads() { host_gpu::wait(host_gpu::block); }

// Runs a kernel; 0 if there is one of that name.
extern "C" int run_kernel(const char *name, const unsigned grid[3], const unsigned size[3],
                          void **arguments) {
    using namespace host_gpu;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    kernel = nullptr;
    for (const Kernels *some = all; some && !kernel; some = some->next)
        for (size_t at = 0; at < some->count; at++)
            if (strcmp(some->first[at].name, name) == 0) kernel = &some->first[at];
    if (!kernel) return 1;
    host_gpu::arguments = arguments;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {size[0], size[1], size[2]};
    threads = size[0] * size[1] * size[2];
    unsigned number = 0;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                is_reversed = number++ % 2;
                run_block();
            }
    return 0;
}
