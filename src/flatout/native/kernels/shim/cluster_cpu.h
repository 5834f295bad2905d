// The CPU back end of cluster_cuda.cuh: all threads of a cluster at once, as shim_cpu.h has those of a block. Copies
// and stores into other blocks happen at once, by the thread that asks for them, and release the arrival barrier that
// counts them: a race is one whenever it happens.
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uint16_t u16;
typedef char* Address;

#define CLUSTER_KERNEL(name, threads) static void name
#define CLUSTER_SHARED(type, name) type& name = *(type*)cluster_self().block->shared
#define UNROLL
#define NO_UNROLL

struct ClusterLane {
    u32 words[6];
    char* address;
};
struct ClusterWarp {
    ClusterBarrier barrier, ordering;
    // Two, taken in turns: who writes the one again has met all others at the barrier of the other.
    ClusterLane lanes[2][32];
};
struct ClusterBlock {
    char* shared;
    int rank;
    ClusterBarrier barrier;
    ClusterWarp* warps;
};
struct ClusterThread {
    ClusterBlock *block, *blocks;
    ClusterBarrier* all;
    int number, cluster, turn, generation;
    size_t shared_bytes;
};
static ClusterThread* cluster_threads;
DEVICE ClusterThread& cluster_self() { return cluster_threads[flatout_running]; }

// An arrival barrier in its eight bytes of shared memory.
struct ClusterArrival {
    int expected;  // bytes still to come; below 0 when they come before they are expected
    u16 pending, phase;
};

template <class To, class From> DEVICE To cluster_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

DEVICE int thread_number() { return cluster_self().number; }
DEVICE int unforeseen(int value) { return value; }
DEVICE int cluster_rank() { return cluster_self().block->rank; }
DEVICE void block_barrier() { cluster_meet(cluster_self().block->barrier); }
DEVICE void cluster_barrier() { cluster_meet(*cluster_self().all); }
DEVICE void cluster_arrive() {
    ClusterBarrier& all = *cluster_self().all;
    cluster_self().generation = __atomic_load_n(&all.generation, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&all.arrived, 1, __ATOMIC_ACQ_REL) == all.count) {
        __atomic_store_n(&all.arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&all.generation, cluster_self().generation + 1, __ATOMIC_RELEASE);
    }
}
DEVICE void cluster_wait() {
    while (__atomic_load_n(&cluster_self().all->generation, __ATOMIC_ACQUIRE) == cluster_self().generation) cluster_pause();
}

DEVICE u32 bits_of(float value) { return cluster_bits<u32>(value); }
DEVICE float float_of(u32 bits) { return cluster_bits<float>(bits); }
DEVICE float fast_sqrt(float x) { return sqrtf(x); }
DEVICE float fast_reciprocal(float x) { return 1.0f / x; }
DEVICE float fast_exp2(float x) { return exp2f(x); }
DEVICE int round_to_int(float x) { return (int)lrintf(x); }
DEVICE int first_bit(u32 bits) { return __builtin_ffs((int)bits) - 1; }

DEVICE u32 half_bits(float value) {
    const u32 bits = bits_of(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return sign | 0x7fffu;
    if (rest >= 0x477ff000u) return sign | 0x7c00u;
    if (rest < 0x38800000u) {  // a subnormal half: a multiple of 2^-24
        return sign | (u32)lrintf(float_of(rest) * 16777216.0f);
    }
    const u32 rounded = rest + 0xfffu + (rest >> 13 & 1u);
    return sign | ((rounded - 0x38000000u) >> 13);
}
DEVICE float float_of_half(u32 half) {
    const u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, rest = half & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | rest << 13);
    const float value = exponent == 0 ? (float)rest / 16777216.0f : float_of((exponent + 112u) << 23 | rest << 13);
    return sign ? -value : value;
}
DEVICE u32 pack_halves(float low, float high) { return half_bits(low) | half_bits(high) << 16; }
DEVICE void unpack_halves(u32 word, float& low, float& high) {
    low = float_of_half(word & 0xffffu);
    high = float_of_half(word >> 16);
}
DEVICE u32 low_halves(u32 a, u32 b) { return (a & 0xffffu) | b << 16; }
DEVICE u32 high_halves(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); }

static void cluster_aligned(const void* p, int bytes) {
    flatout_require((uintptr_t)p % bytes == 0, "words at an address that is no multiple of their bytes");
}
template <class Word> DEVICE void store_two(Word* to, Word a, Word b) {
    cluster_aligned(to, 8);
    to[0] = a;
    to[1] = b;
}
template <class Word> DEVICE void load_two(const Word* from, Word& a, Word& b) {
    cluster_aligned(from, 8);
    a = from[0];
    b = from[1];
}

struct FourWords { u32 a, b, c, d; };
DEVICE FourWords load_four(const void* from) {
    cluster_aligned(from, 16);
    FourWords words;
    memcpy(&words, from, 16);
    return words;
}

// What the lanes of this warp bring to an instruction that they run together, after all have brought it.
struct ClusterMeeting {
    ClusterLane* lanes;
    int lane;
    ClusterMeeting() {
        cluster_self().turn ^= 1;
        lane = cluster_self().number & 31;
        lanes = warp().lanes[cluster_self().turn];
    }
    explicit ClusterMeeting(u32 word) : ClusterMeeting() {
        bring(0, word);
        meet();
    }
    explicit ClusterMeeting(char* address) : ClusterMeeting() {
        __atomic_store_n(&mine().address, address, __ATOMIC_RELAXED);
        meet();
    }
    static ClusterWarp& warp() { return cluster_self().block->warps[cluster_self().number >> 5]; }
    ClusterLane& mine() { return lanes[lane]; }
    void meet() { cluster_meet_unordered(warp().barrier); }
    void bring(int n, u32 word) { __atomic_store_n(&mine().words[n], word, __ATOMIC_RELAXED); }
    u32 brought(int of, int n) { return __atomic_load_n(&lanes[of].words[n], __ATOMIC_RELAXED); }
    char* brought(int of) { return __atomic_load_n(&lanes[of].address, __ATOMIC_RELAXED); }
};

DEVICE void warp_barrier() { cluster_meet(ClusterMeeting::warp().ordering); }

DEVICE void multiply_tiles(float* d, const u32* a, u32 b0, u32 b1) {
    ClusterMeeting meeting;
    for (int i = 0; i < 4; i++) meeting.bring(i, a[i]);
    meeting.bring(4, b0);
    meeting.bring(5, b1);
    meeting.meet();
    const int g = meeting.lane >> 2, t = meeting.lane & 3;
    for (int i = 0; i < 4; i++) {
        float sum = d[i];
        for (int half = 0; half < 2; half++)
            for (int q = 0; q < 4; q++) {
                float a0, a1, c0, c1;
                unpack_halves(meeting.brought(4 * g + q, 2 * half + (i >> 1)), a0, a1);
                unpack_halves(meeting.brought(4 * (2 * t + (i & 1)) + q, 4 + half), c0, c1);
                sum += a0 * c0;
                sum += a1 * c1;
            }
        d[i] = sum;
    }
}
DEVICE void load_tiles(u32* r, Address row) {
    ClusterMeeting meeting(row);
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], meeting.brought(8 * i + (meeting.lane >> 2)) + 4 * (meeting.lane & 3), 4);
}
DEVICE void load_tiles_transposed(u32* r, Address row) {
    ClusterMeeting meeting(row);
    const int g = meeting.lane >> 2, t = meeting.lane & 3;
    for (int i = 0; i < 4; i++) {
        u16 low, high;
        memcpy(&low, meeting.brought(8 * i + 2 * t) + 2 * g, 2);
        memcpy(&high, meeting.brought(8 * i + 2 * t + 1) + 2 * g, 2);
        r[i] = low | (u32)high << 16;
    }
}
DEVICE u32 transpose_tile(u32 word) {
    ClusterMeeting meeting(word);
    const int g = meeting.lane >> 2, t = meeting.lane & 3;
    const u32 low = meeting.brought(4 * (2 * t) + (g >> 1), 0), high = meeting.brought(4 * (2 * t + 1) + (g >> 1), 0);
    return g & 1 ? high_halves(low, high) : low_halves(low, high);
}
DEVICE int warp_max(int value) {
    ClusterMeeting meeting((u32)value);
    for (int i = 0; i < 32; i++) value = (int)meeting.brought(i, 0) > value ? (int)meeting.brought(i, 0) : value;
    return value;
}
DEVICE int warp_sum(int value) {
    ClusterMeeting meeting((u32)value);
    u32 sum = 0;
    for (int i = 0; i < 32; i++) sum += meeting.brought(i, 0);
    return (int)sum;
}
DEVICE u32 warp_ballot(bool value) {
    ClusterMeeting meeting((u32)value);
    u32 bits = 0;
    for (int i = 0; i < 32; i++) bits |= meeting.brought(i, 0) << i;
    return bits;
}
DEVICE float from_lane(float value, int lane) {
    ClusterMeeting meeting(bits_of(value));
    return float_of(meeting.brought(lane & 31, 0));
}
DEVICE float from_lane_xor(float value, int mask) { return from_lane(value, (thread_number() & 31) ^ mask); }

DEVICE Address shared_address(const void* p) { return (char*)p; }
DEVICE ClusterBlock* cluster_owner(Address address) {
    for (int b = 0; b < cluster_self().cluster; b++) {
        ClusterBlock* block = cluster_self().blocks + b;
        if (address >= block->shared && address < block->shared + cluster_self().shared_bytes) return block;
    }
    flatout_require(false, "an address outside the cluster's shared memory");
    return nullptr;
}
DEVICE Address remote(Address address, int rank) {
    return cluster_self().blocks[rank].shared + (address - cluster_owner(address)->shared);
}
DEVICE void put(Address address, u32 value) { memcpy(address, &value, 4); }

// Change an arrival barrier. Who waits for it sees what was written before; who changes it sees nothing of the others.
static void cluster_change(Address barrier, int expected, int came, bool arrives) {
    u64 before = __atomic_load_n((u64*)barrier, __ATOMIC_RELAXED), after;
    do {
        ClusterArrival one = cluster_bits<ClusterArrival>(before);
        flatout_require(!arrives || one.pending != 0, "an arrival barrier is armed twice in a phase");
        one.pending -= arrives;
        one.expected += expected - came;
        if (one.pending == 0 && one.expected == 0) {
            one.pending = 1;
            one.phase ^= 1;
        }
        after = cluster_bits<u64>(one);
    } while (!__atomic_compare_exchange_n((u64*)barrier, &before, after, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}
DEVICE void arrival_init(Address barrier) {
    __atomic_store_n((u64*)barrier, cluster_bits<u64>(ClusterArrival{0, 1, 0}), __ATOMIC_RELAXED);
}
DEVICE void arrival_init_done() {}
DEVICE void arrival_expect(Address barrier, u32 bytes) { cluster_change(barrier, (int)bytes, 0, true); }
DEVICE void arrival_wait(Address barrier, u32 parity) {
    while (cluster_bits<ClusterArrival>(__atomic_load_n((u64*)barrier, __ATOMIC_ACQUIRE)).phase == parity) cluster_pause();
}
static void cluster_came(Address barrier, int bytes) { cluster_change(barrier, 0, bytes, false); }
DEVICE void push(Address to, u32 x, Address barrier) {
    memcpy(to, &x, 4);
    cluster_came(barrier, 4);
}
DEVICE void push_pair(Address to, u32 x, u32 y, Address barrier) {
    cluster_aligned(to, 8);
    memcpy(to, &x, 4);
    memcpy(to + 4, &y, 4);
    cluster_came(barrier, 8);
}
DEVICE void push_four(Address to, const FourWords& x, Address barrier) {
    cluster_aligned(to, 16);
    memcpy(to, &x, 16);
    cluster_came(barrier, 16);
}
DEVICE void copy_here(Address to, const void* from, u32 bytes, Address barrier) {
    cluster_aligned(to, 16);
    cluster_aligned(from, 16);
    flatout_require(bytes % 16 == 0, "a bulk copy that is not in units of 16 bytes");
    // Not memcpy, in which ThreadSanitizer sees nothing.
    for (u32 i = 0; i < bytes; i += 8) *(volatile u64*)(to + i) = *(const u64*)((const char*)from + i);
    cluster_came(barrier, (int)bytes);
}
DEVICE void copy_to_blocks(Address to, const void* from, u32 bytes, Address barrier, u16 blocks) {
    for (int b = 0; b < cluster_self().cluster; b++)
        if (blocks >> b & 1) copy_here(remote(to, b), from, bytes, remote(barrier, b));
}
DEVICE void prefetch(const void*, u32) {}

// Run a kernel with one cluster. Shared memory is filled with NaNs: nobody may rely on zeros.
static void cluster_launch(const FlatoutLaunch& launch) {
    const int cluster = launch.cluster, threads = launch.threads;
    ClusterBlock* blocks = (ClusterBlock*)calloc(cluster, sizeof(ClusterBlock));
    cluster_threads = (ClusterThread*)calloc(cluster * threads, sizeof(ClusterThread));
    ClusterBarrier barrier;
    cluster_make(barrier, cluster * threads);
    const size_t room = ((size_t)launch.shared_bytes + 127) / 128 * 128;
    for (int b = 0; b < cluster; b++) {
        blocks[b].shared = (char*)aligned_alloc(128, room);
        memset(blocks[b].shared, 0xff, room);
        blocks[b].rank = b;
        blocks[b].warps = (ClusterWarp*)calloc(threads / 32, sizeof(ClusterWarp));
        cluster_make(blocks[b].barrier, threads);
        for (int w = 0; w < threads / 32; w++) {
            cluster_make(blocks[b].warps[w].barrier, 32);
            cluster_make(blocks[b].warps[w].ordering, 32);
        }
        for (int t = 0; t < threads; t++)
            cluster_threads[b * threads + t] = {&blocks[b], blocks, &barrier, t, cluster, 0, 0, room};
    }
    flatout_execute(cluster * threads, false);
    for (int b = 0; b < cluster; b++) {
        free(blocks[b].shared);
        free(blocks[b].warps);
    }
    free(cluster_threads);
    free(blocks);
}
