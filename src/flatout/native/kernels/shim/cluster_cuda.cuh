// What a cluster of blocks and the matrix unit need, as inline PTX for sm_90 and later; cluster_cpu.h is the other back
// end. No header is included: NVRTC takes 0.1 s for this, and seven for cooperative_groups.h.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef u32 Address;  // of shared memory, in this block or, by `remote`, in another

#define CLUSTER_KERNEL(name, threads) extern "C" __global__ void __launch_bounds__(threads, 1) name
#define CLUSTER_SHARED(type, name)                        \
    extern __shared__ __align__(128) char cluster_memory[]; \
    type& name = *reinterpret_cast<type*>(cluster_memory)
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

DEVICE int thread_number() { return threadIdx.x; }
// The same number, of which the compiler knows nothing: what is computed from it stays where it is.
DEVICE int unforeseen(int value) { asm volatile("" : "+r"(value)); return value; }
DEVICE void block_barrier() { __syncthreads(); }
DEVICE void warp_barrier() { __syncwarp(); }

DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE float fast_sqrt(float x) { float r; asm("sqrt.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x)); return r; }
DEVICE float fast_reciprocal(float x) { float r; asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x)); return r; }
DEVICE float fast_exp2(float x) { float r; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x)); return r; }
DEVICE int round_to_int(float x) { return __float2int_rn(x); }
DEVICE int first_bit(u32 bits) { return __ffs(bits) - 1; }

// Two floats, rounded, as a word of two halves; and back.
DEVICE u32 pack_halves(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
DEVICE void unpack_halves(u32 word, float& low, float& high) {
    asm("{.reg .f16 p,q;\nmov.b32 {p,q},%2;\ncvt.f32.f16 %0,p;\ncvt.f32.f16 %1,q;}" : "=f"(low), "=f"(high) : "r"(word));
}
// Two or four words of shared memory in one instruction; aligned to as many.
DEVICE void store_two(float* to, float a, float b) { *(float2*)to = make_float2(a, b); }
DEVICE void store_two(u32* to, u32 a, u32 b) { *(uint2*)to = make_uint2(a, b); }
DEVICE void load_two(const float* from, float& a, float& b) {
    const float2 both = *(const float2*)from;
    a = both.x;
    b = both.y;
}
DEVICE void load_two(const u32* from, u32& a, u32& b) {
    const uint2 both = *(const uint2*)from;
    a = both.x;
    b = both.y;
}
struct FourWords { u32 a, b, c, d; };
DEVICE FourWords load_four(const void* from) {
    const uint4 all = *(const uint4*)from;
    return {all.x, all.y, all.z, all.w};
}
// The low halves of two words, and the high ones.
DEVICE u32 low_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
DEVICE u32 high_halves(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }

// d += a * b: 16 x 16 by 16 x 8, halves into floats.
DEVICE void multiply_tiles(float* d, const u32* a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8 x 8 tiles of halves; lanes 8 i to 8 i + 7 name the rows of tile i.
DEVICE void load_tiles(u32* r, Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}
DEVICE void load_tiles_transposed(u32* r, Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

// An 8 x 8 tile of halves, a word of a row in each lane: rows become columns.
DEVICE u32 transpose_tile(u32 word) {
    u32 r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(r) : "r"(word));
    return r;
}

DEVICE int warp_max(int value) { int r; asm volatile("redux.sync.max.s32 %0,%1,0xffffffff;" : "=r"(r) : "r"(value)); return r; }
DEVICE int warp_sum(int value) { int r; asm volatile("redux.sync.add.s32 %0,%1,0xffffffff;" : "=r"(r) : "r"(value)); return r; }
DEVICE u32 warp_ballot(bool value) { return __ballot_sync(0xffffffffu, value); }
DEVICE float from_lane(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE float from_lane_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// The cluster. Its barrier is complete (release and acquire), so it is used around the step loop alone.
DEVICE int cluster_rank() { u32 r; asm volatile("mov.u32 %0,%%cluster_ctarank;" : "=r"(r)); return (int)r; }
DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same barrier in two parts, for what a thread has read: no store is made visible by it.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE Address shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE Address remote(Address address, int rank) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(r) : "r"(address), "r"(rank));
    return r;
}
// A plain store into any block of the cluster; visible after a cluster barrier.
DEVICE void put(Address address, u32 value) {
    asm volatile("st.shared::cluster.u32 [%0],%1;" ::"r"(address), "r"(value) : "memory");
}

// A phase of an arrival barrier ends when one thread has said how many bytes to expect, and they have come.
DEVICE void arrival_init(Address barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0],1;" ::"r"(barrier) : "memory");
}
DEVICE void arrival_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrival_expect(Address barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE void arrival_wait(Address barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nL%=:\nmbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1;\n@!p bra L%=;\n}"
                 ::"r"(barrier), "r"(parity) : "memory");
}
// Push values into a block's shared memory; the bytes count on its arrival barrier.
DEVICE void push(Address to, u32 x, Address barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0],%1,[%2];"
                 ::"r"(to), "r"(x), "r"(barrier) : "memory");
}
DEVICE void push_pair(Address to, u32 x, u32 y, Address barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0],{%1,%2},[%3];"
                 ::"r"(to), "r"(x), "r"(y), "r"(barrier) : "memory");
}
DEVICE void push_four(Address to, const FourWords& x, Address barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0],{%1,%2,%3,%4},[%5];"
                 ::"r"(to), "r"(x.a), "r"(x.b), "r"(x.c), "r"(x.d), "r"(barrier) : "memory");
}
// Bytes of global memory, a multiple of 16, to the same place in every block that has a bit in `blocks`.
DEVICE void copy_to_blocks(Address to, const void* from, u32 bytes, Address barrier, u16 blocks) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1],%2,[%3],%4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"(blocks) : "memory");
}
// The same to this block alone.
DEVICE void copy_here(Address to, const void* from, u32 bytes, Address barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// Ask the L2 cache for bytes that a copy will want.
DEVICE void prefetch(const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0],%1;" ::"l"(from), "r"(bytes) : "memory");
}
