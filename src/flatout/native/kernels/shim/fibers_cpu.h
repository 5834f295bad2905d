// The threads of a block or of a cluster as fibers on one thread of the CPU.
#include <setjmp.h>
#include <ucontext.h>

static FlatoutIndex threadIdx;
static int flatout_running;  // the number of the fiber that runs

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
    // A cluster has thousands of threads, and is launched once in many steps.
    for (int n = 0; !in_step && n < count; n++) {
        free(flatout_stacks[n]);
        flatout_stacks[n] = nullptr;
    }
}

// What cluster_cpu.h waits with.
struct ClusterBarrier {
    int count, arrived, generation;
};
static void cluster_make(ClusterBarrier& barrier, int count) { barrier = {count, 0, 0}; }
static void cluster_pause() { flatout_yield(); }
static void cluster_meet(ClusterBarrier& barrier) {
    const int generation = barrier.generation;
    if (++barrier.arrived == barrier.count) {
        barrier.arrived = 0;
        barrier.generation++;
    }
    while (barrier.generation == generation) flatout_yield();
}
static void cluster_meet_unordered(ClusterBarrier& barrier) { cluster_meet(barrier); }
