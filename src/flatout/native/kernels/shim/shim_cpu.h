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
#define SHARED(type, name) type& name = *(type*)flatout_shared

struct FlatoutIndex {
    int x, y, z;
};
typedef void (*FlatoutCall)(void** arguments);
struct FlatoutLaunch {
    int kernel, grid_x, grid_y, grid_z, threads, cluster, shared_bytes, first_argument;
};
struct FlatoutKernel {
    const char* name;
    FlatoutCall call;
    void (*launch)(const FlatoutLaunch& launch);
};
#ifdef FLATOUT_THREADS
#define FLATOUT_OWN static thread_local
#else
#define FLATOUT_OWN static
#endif
FLATOUT_OWN FlatoutIndex threadIdx;
FLATOUT_OWN int flatout_running;  // the number of the emulated thread that runs
static FlatoutIndex blockIdx, blockDim, gridDim;
alignas(64) static char flatout_shared[48 * 1024];
static FlatoutCall flatout_call;
static void** flatout_arguments;

static void flatout_require(bool is_so, const char* otherwise) {
    if (is_so) return;
    fprintf(stderr, "%s\n", otherwise);
    abort();
}

#ifdef FLATOUT_THREADS

static pthread_barrier_t flatout_begin, flatout_end, flatout_block;
static void __syncthreads() { pthread_barrier_wait(&flatout_block); }

static void* flatout_thread(void* number) {
    flatout_running = (int)(long)number;
    threadIdx = {flatout_running, 0, 0};
    for (;;) {
        pthread_barrier_wait(&flatout_begin);
        flatout_call(flatout_arguments);
        pthread_barrier_wait(&flatout_end);
    }
    return nullptr;
}

// The threads live on from block to block, as many in each: ThreadSanitizer can tell only some hundreds apart.
static void flatout_execute(int count, bool) {
    static int started = 0;
    if (!started) {
        pthread_barrier_init(&flatout_begin, nullptr, count + 1);
        pthread_barrier_init(&flatout_end, nullptr, count + 1);
        pthread_barrier_init(&flatout_block, nullptr, count);
        for (; started < count; started++) {
            pthread_t thread;
            const bool is_made = !pthread_create(&thread, nullptr, flatout_thread, (void*)(long)started);
            flatout_require(is_made && !pthread_detach(thread), "no more threads");
        }
    }
    flatout_require(count == started, "blocks of one size alone");
    pthread_barrier_wait(&flatout_begin);
    pthread_barrier_wait(&flatout_end);
}

#else

// A fiber for each thread, used again by the next block. Only the first switch to one is by ucontext, which asks the
// operating system; the others are jumps.
static const int FLATOUT_STACK = 64 * 1024, FLATOUT_MOST = 16 * 1024;
static ucontext_t flatout_entry;
static jmp_buf flatout_scheduler, flatout_fibers[FLATOUT_MOST];
static char* flatout_stacks[FLATOUT_MOST];
static bool flatout_done[FLATOUT_MOST];

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

static void flatout_resume(int number) {
    threadIdx = {number, 0, 0};
    flatout_running = number;
    if (_setjmp(flatout_scheduler)) return;
    if (flatout_stacks[number]) _longjmp(flatout_fibers[number], 1);
    flatout_stacks[number] = (char*)malloc(FLATOUT_STACK);
    getcontext(&flatout_entry);
    flatout_entry.uc_stack.ss_sp = flatout_stacks[number];
    flatout_entry.uc_stack.ss_size = FLATOUT_STACK;
    flatout_entry.uc_link = nullptr;
    makecontext(&flatout_entry, flatout_fiber, 0);
    setcontext(&flatout_entry);
}

// Run `count` threads to their end. `in_step`: each time they wait, all of them do.
static void flatout_execute(int count, bool in_step) {
    flatout_require(count <= FLATOUT_MOST, "more threads than there are fibers");
    memset(flatout_done, 0, count);
    for (int waiting = count; waiting > 0;) {
        waiting = 0;
        for (int n = 0; n < count; n++) {
            if (flatout_done[n]) continue;
            flatout_resume(n);
            waiting += !flatout_done[n];
        }
        flatout_require(!in_step || waiting == 0 || waiting == count, "a barrier that not all threads of a block reach");
    }
}

#endif

static void flatout_launch(const FlatoutLaunch& launch) {
    gridDim = {launch.grid_x, launch.grid_y, launch.grid_z};
    blockDim = {launch.threads, 1, 1};
    const int blocks = gridDim.x * gridDim.y * gridDim.z;
    for (int turn = 0; turn < blocks; turn++) {
#ifdef FLATOUT_REVERSED
        const int n = blocks - 1 - turn;
#else
        const int n = turn;
#endif
        blockIdx = {n % gridDim.x, n / gridDim.x % gridDim.y, n / (gridDim.x * gridDim.y)};
        flatout_execute(launch.threads, true);
    }
}

extern const FlatoutKernel flatout_kernels[];

// Run launches one after the other, all of them `repeat` times; `arguments` points to every launch's arguments in turn.
extern "C" void flatout_run(const FlatoutLaunch* launches, int count, void** arguments, int repeat) {
    for (int again = 0; again < repeat; again++)
        for (int n = 0; n < count; n++) {
            flatout_call = flatout_kernels[launches[n].kernel].call;
            flatout_arguments = arguments + launches[n].first_argument;
            flatout_kernels[launches[n].kernel].launch(launches[n]);
        }
}
