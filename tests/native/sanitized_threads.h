// In the place of fibers_cpu.h: a thread of the operating system for each emulated one, so that ThreadSanitizer sees what a
// GPU may do at once.
#include <pthread.h>
#include <unistd.h>

static thread_local FlatoutIndex threadIdx;
static thread_local int flatout_running;  // the number of the thread

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

// What cluster_cpu.h waits with.
struct ClusterBarrier {
    int count, arrived, generation;
    pthread_barrier_t real;
};
static void cluster_make(ClusterBarrier& barrier, int count) {
    barrier.count = count;
    barrier.arrived = barrier.generation = 0;
    pthread_barrier_init(&barrier.real, nullptr, count);
}
static void cluster_pause() { usleep(20); }
static void cluster_meet(ClusterBarrier& barrier) { pthread_barrier_wait(&barrier.real); }
// Orders memory for the CPU, unseen by ThreadSanitizer.
static void cluster_fence() {
#if defined(__aarch64__)
    asm volatile("dmb ish" ::: "memory");
#elif defined(__x86_64__)
    asm volatile("mfence" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
// Lanes that run an instruction together are not ordered in memory by it: only a warp barrier does that. So the sanitizer must not
// take this meeting for more.
static void cluster_meet_unordered(ClusterBarrier& barrier) {
    const int generation = __atomic_load_n(&barrier.generation, __ATOMIC_RELAXED);
    cluster_fence();
    if (__atomic_add_fetch(&barrier.arrived, 1, __ATOMIC_RELAXED) == barrier.count) {
        __atomic_store_n(&barrier.arrived, 0, __ATOMIC_RELAXED);
        cluster_fence();
        __atomic_store_n(&barrier.generation, generation + 1, __ATOMIC_RELAXED);
    }
    while (__atomic_load_n(&barrier.generation, __ATOMIC_RELAXED) == generation) cluster_pause();
    cluster_fence();
}
