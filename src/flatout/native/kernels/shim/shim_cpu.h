// The shim's CPU back end: the threads of a block as fibers on one CPU thread, or, with -DFLATOUT_THREADS, as threads of
// the operating system, so that ThreadSanitizer sees what a GPU may do at once. Block follows block; -DFLATOUT_REVERSED
// begins with the last one, which must change nothing.
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define KERNEL(name) static void name
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define SHARED(type, name) type& name = *(type*)flatout_block->shared

struct FlatoutIndex {
    int x, y, z;
};
struct FlatoutBlock {
    FlatoutIndex index;
    alignas(64) char shared[48 * 1024];
    pthread_barrier_t barrier;
};
#ifdef FLATOUT_THREADS
#define FLATOUT_OWN static thread_local
#else
#define FLATOUT_OWN static
#endif
FLATOUT_OWN FlatoutBlock* flatout_block;
FLATOUT_OWN FlatoutIndex threadIdx, blockIdx, blockDim, gridDim;

typedef void (*FlatoutCall)(void** arguments);
struct FlatoutKernel {
    const char* name;
    FlatoutCall call;
};
struct FlatoutLaunch {
    int kernel, grid_x, grid_y, grid_z, threads, first_argument;
};

#ifdef FLATOUT_THREADS

static void __syncthreads() { pthread_barrier_wait(&flatout_block->barrier); }

// The threads live on from block to block: ThreadSanitizer can tell only some hundreds apart.
static const int FLATOUT_BLOCK = 256;
static FlatoutBlock flatout_the_block;
static pthread_barrier_t flatout_begin, flatout_end;
static FlatoutCall flatout_call;
static void** flatout_arguments;
static FlatoutIndex flatout_grid;

static void* flatout_thread(void* argument) {
    flatout_block = &flatout_the_block;
    for (;;) {
        pthread_barrier_wait(&flatout_begin);
        threadIdx = {(int)(long)argument, 0, 0};
        blockIdx = flatout_block->index;
        blockDim = {FLATOUT_BLOCK, 1, 1};
        gridDim = flatout_grid;
        flatout_call(flatout_arguments);
        pthread_barrier_wait(&flatout_end);
    }
    return nullptr;
}

static void flatout_start() {
    pthread_barrier_init(&flatout_begin, nullptr, FLATOUT_BLOCK + 1);
    pthread_barrier_init(&flatout_end, nullptr, FLATOUT_BLOCK + 1);
    pthread_barrier_init(&flatout_the_block.barrier, nullptr, FLATOUT_BLOCK);
    for (long number = 0; number < FLATOUT_BLOCK; number++) {
        pthread_t started;
        if (pthread_create(&started, nullptr, flatout_thread, (void*)number) || pthread_detach(started)) {
            fprintf(stderr, "no more threads\n");
            abort();
        }
    }
}

static void flatout_launch(FlatoutCall call, FlatoutIndex grid, int threads, void** arguments) {
    static bool is_started = false;
    if (!is_started) flatout_start();
    is_started = true;
    if (threads != FLATOUT_BLOCK) abort();
    for (int n = 0; n < grid.x * grid.y * grid.z; n++) {
        flatout_the_block.index = {n % grid.x, n / grid.x % grid.y, n / (grid.x * grid.y)};
        flatout_call = call;
        flatout_arguments = arguments;
        flatout_grid = grid;
        pthread_barrier_wait(&flatout_begin);
        pthread_barrier_wait(&flatout_end);
    }
}

#else

// A fiber for each thread of a block, used again by the next block. Only the first switch to one is by ucontext, which
// asks the operating system; the others are jumps.
static const int FLATOUT_STACK = 64 * 1024, FLATOUT_MOST = 1024;
static ucontext_t flatout_entry;
static jmp_buf flatout_scheduler, flatout_fibers[FLATOUT_MOST];
static char* flatout_stacks;
static bool flatout_started[FLATOUT_MOST], flatout_done[FLATOUT_MOST];
static int flatout_running;
static FlatoutCall flatout_call;
static void** flatout_arguments;

static void flatout_yield() {
    if (!_setjmp(flatout_fibers[flatout_running])) _longjmp(flatout_scheduler, 1);
}

static void __syncthreads() { flatout_yield(); }

static void flatout_fiber() {
    for (;;) {
        flatout_call(flatout_arguments);
        flatout_done[flatout_running] = true;
        flatout_yield();
    }
}

static void flatout_resume(int t) {
    threadIdx = {t, 0, 0};
    flatout_running = t;
    if (_setjmp(flatout_scheduler)) return;
    if (flatout_started[t]) _longjmp(flatout_fibers[t], 1);
    flatout_started[t] = true;
    getcontext(&flatout_entry);
    flatout_entry.uc_stack.ss_sp = flatout_stacks + (size_t)t * FLATOUT_STACK;
    flatout_entry.uc_stack.ss_size = FLATOUT_STACK;
    flatout_entry.uc_link = nullptr;
    makecontext(&flatout_entry, flatout_fiber, 0);
    setcontext(&flatout_entry);
}

static void flatout_launch(FlatoutCall call, FlatoutIndex grid, int threads, void** arguments) {
    static FlatoutBlock block;
    if (!flatout_stacks) flatout_stacks = (char*)malloc((size_t)FLATOUT_STACK * FLATOUT_MOST);
    flatout_block = &block;
    flatout_call = call;
    flatout_arguments = arguments;
    gridDim = grid;
    blockDim = {threads, 1, 1};
    const int blocks = grid.x * grid.y * grid.z;
    for (int turn = 0; turn < blocks; turn++) {
#ifdef FLATOUT_REVERSED
        const int n = blocks - 1 - turn;
#else
        const int n = turn;
#endif
        blockIdx = {n % grid.x, n / grid.x % grid.y, n / (grid.x * grid.y)};
        memset(flatout_done, 0, sizeof(flatout_done));
        for (int waiting = threads; waiting > 0;) {
            waiting = 0;
            for (int t = 0; t < threads; t++) {
                flatout_resume(t);
                waiting += !flatout_done[t];
            }
            if (waiting != 0 && waiting != threads) {
                fprintf(stderr, "a barrier that not all threads of a block reach\n");
                abort();
            }
        }
    }
}

#endif

extern const FlatoutKernel flatout_kernels[];

// Run launches one after the other, all of them `repeat` times; `arguments` points to every launch's arguments in turn.
extern "C" void flatout_run(const FlatoutLaunch* launches, int count, void** arguments, int repeat) {
    for (int again = 0; again < repeat; again++)
        for (int n = 0; n < count; n++) {
            const FlatoutLaunch& one = launches[n];
            FlatoutIndex grid = {one.grid_x, one.grid_y, one.grid_z};
            flatout_launch(flatout_kernels[one.kernel].call, grid, one.threads, arguments + one.first_argument);
        }
}
