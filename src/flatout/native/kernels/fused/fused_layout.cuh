// How the fused kernel shares its work out, and where in registers and shared memory what lies.

template <class C> struct FusedSizes {
    static constexpr int UNITS = C::HIDDEN / C::CLUSTER;
    static constexpr bool PACKED = UNITS == 8;
    static constexpr int HALVES = PACKED ? 1 : 2;      // used halves of a 16-row tile of units
    static constexpr int UNIT_TILES = UNITS / (8 * HALVES);
    static constexpr int EIGHTS = UNITS / 8;
    static constexpr int PER_HALF = 2 * HALVES;   // parameters of a thread in 8 features of a tile
    static constexpr int PER_TILE = 2 * PER_HALF;
    static constexpr int TILES = C::FEATURE_TILES / C::WARPS;           // of 16 features, for each warp
    static constexpr int EXTRA = C::FEATURE_TILES - TILES * C::WARPS;   // one more each for warps 0, 4, 5, ...
    static constexpr int SLOTS = TILES + 1;       // the last: such a tile, or (warps 1 to 3) bias, bias, second kernel
    static constexpr int ROWS = C::BATCH / C::CLUSTER;
    static constexpr int ROW_TILES = C::BATCH / 8;
    static constexpr int STEPS_OF_K = C::BATCH / 16;
    static constexpr int ROW_HALVES = C::PLANES * C::FEATURE_TILES * 16;
    static constexpr int ROW_COPY = 2 * ROW_HALVES;
    static constexpr int ROW_BYTES = ROW_COPY + 16;  // no two of eight rows begin in the same banks
    static constexpr int PLANE = C::FEATURE_TILES * 32;
    static constexpr int STRIDE = C::OUTPUTS <= 12 ? 12 : 20;  // of a row of outputs
    static constexpr int SWIZZLE = ROW_TILES < 4 ? ROW_TILES - 1 : 3;
    static constexpr int SOFTMAX_WARPS = C::WARPS < 8 ? C::WARPS : 8;
    static constexpr int ROWS_AT_ONCE = ROWS < SOFTMAX_WARPS ? ROWS : SOFTMAX_WARPS;
    static constexpr int PASSES = ROWS / ROWS_AT_ONCE;
    static constexpr int GROUPS = SOFTMAX_WARPS / ROWS_AT_ONCE;  // warps that share a row; each serves some blocks
    static constexpr int EXCHANGED = C::BATCH * C::OUTPUTS * 4;

    // What a thread has in registers: its parameters (or their slots), hi or lo halves of the gradient of the hidden
    // units and of the output layer's kernel, the gradient of its role.
    typedef float Parameters[UNIT_TILES][SLOTS][PER_TILE];
    typedef u32 Gradient[UNIT_TILES][STEPS_OF_K][4];
    typedef u32 OutputKernel[UNIT_TILES][4];
    typedef float Role[UNIT_TILES][PER_TILE];

    static_assert(PACKED || UNITS % 16 == 0, "8 units a block, or a multiple of 16");
    static_assert(TILES >= 1 && EXTRA <= C::WARPS - 3, "tiles for every warp, and no more than they have slots");
    static_assert(C::WARPS % 4 == 0 && ROW_TILES <= C::WARPS, "warps for the rows");
    static_assert(C::OUTPUTS <= 16 && ROWS <= 32 && ROWS * C::CLUSTER == C::BATCH, "rows and outputs");
};

template <class C> struct FusedShared {
    typedef FusedSizes<C> S;
    alignas(128) char x[2][C::BATCH * S::ROW_BYTES];    // this batch and the next
    float partial[C::WARPS][S::UNITS * C::BATCH];       // forward sums, one slab a warp
    float logits[2][C::BATCH * C::OUTPUTS];             // partial logits received for this block's rows
    u32 hidden[S::UNITS * C::BATCH];                    // words {hi, lo}
    float slope[S::UNITS * C::BATCH];                   // of the activation
    u32 dlogits[C::BATCH * S::STRIDE];                  // of all rows, received
    u32 dh[S::ROW_TILES][32][2 * S::EIGHTS];            // gradient of the hidden units as fragments, hi and lo of a lane
    u32 w2[S::UNITS * S::STRIDE];
    float b1[S::UNITS];
    float b2[2][16];
    u32 failed[C::CLUSTER * C::WARPS];
    alignas(8) u64 arrivals[4];                         // logits, dlogits, x[0], x[1]
};

// Where a thread is: warp, lane, row and column group of a fragment, block; and the tile beyond those that all warps have.
template <class C> struct FusedPlace {
    int warp, lane, g, t, rank, extra;
    bool has_extra;

    static DEVICE_MEMBER FusedPlace of(int thread, int rank) {
        const int warp = thread >> 5, lane = thread & 31, extra = warp == 0 ? 0 : warp - 3;
        const bool has_extra = FusedSizes<C>::EXTRA > 0 && (warp == 0 || warp > 3) && extra < FusedSizes<C>::EXTRA;
        return {warp, lane, lane >> 2, lane & 3, rank, extra, has_extra};
    }
    static DEVICE_MEMBER FusedPlace here() { return of(thread_number(), cluster_rank()); }
};

// As FusedPlace::here(), made anew for each step, or layer: what is made of it costs less than the registers in which it would wait.
template <class C> DEVICE FusedPlace<C> place_for_now(int rank) {
    return FusedPlace<C>::of(unforeseen(thread_number()), rank);
}

// Where unit and row lie in a UNITS x BATCH array: rows of eight are permuted, to spread them over the banks.
template <class C> DEVICE int at_unit(int unit, int tile, int row) {
    return unit * C::BATCH + ((tile ^ (unit & FusedSizes<C>::SWIZZLE)) << 3) + row;
}

// Whether a unit of this block is only there to fill the matrix tiles: its value and slope are 0, and so are its weights.
template <class C> DEVICE bool is_padding(const FusedPlace<C>& me, int unit) {
    return C::WIDTH < C::HIDDEN && me.rank * FusedSizes<C>::UNITS + unit >= C::WIDTH;
}

// Which parameter is in a register: an offset in the arena, or -1. `storing`: only for one of the threads that hold it.
template <class C> DEVICE int fused_offset(int u, int slot, int half, int e, const FusedPlace<C>& me, bool storing) {
    typedef FusedSizes<C> S;
    const int unit = me.rank * S::UNITS + 16 * u + me.g + 8 * (e >> 1);
    if constexpr (C::WIDTH < C::HIDDEN) {
        const bool is_second_bias = C::IS_LAST && slot == S::TILES && me.warp == 2;
        if (unit >= C::WIDTH && !is_second_bias) return -1;
    }
    if (slot < S::TILES || me.has_extra) {
        const int tile = slot < S::TILES ? S::TILES * me.warp + slot : S::TILES * C::WARPS + me.extra;
        const int feature = 16 * tile + 8 * half + 2 * me.t + (e & 1);
        return feature < C::INPUTS ? C::AT_W1 + feature * C::WIDTH + unit : -1;
    }
    if (me.warp == 1) return half == 0 && (e & 1) == 0 && (!storing || me.t == 0) ? C::AT_B1 + unit : -1;
    if constexpr (C::IS_LAST) {
        if (me.warp == 2) {
            const int output = e < 2 ? 8 * half + 4 * e + me.t : C::OUTPUTS;
            return u == 0 && output < C::OUTPUTS && (!storing || (me.g == 0 && me.rank == 0)) ? C::AT_B2 + output : -1;
        }
        if (me.warp == 3) {
            const int output = 8 * half + 2 * me.t + (e & 1);
            return output < C::OUTPUTS ? C::AT_W2 + unit * C::OUTPUTS + output : -1;
        }
    }
    return -1;
}

// The gradient of 16 features of the first kernel, and of the second one: sums of hi and of lo products.
template <class C> struct FusedSum {
    typedef FusedSizes<C> S;
    static constexpr int PARTS = S::PACKED || !C::EXACT ? 1 : 2;
    float c[PARTS][8] = {};

    // Left operand hi (PACKED: hi and lo) and lo; right operand in two times eight columns, `is_lo` itself.
    DEVICE_MEMBER void add(const u32* hi, const u32* lo, const u32* right, bool is_lo) {
        multiply_tiles(c[0], hi, right[0], right[1]);
        multiply_tiles(c[0] + 4, hi, right[2], right[3]);
        if constexpr (PARTS == 2)
            if (!is_lo) {
                multiply_tiles(c[1], lo, right[0], right[1]);
                multiply_tiles(c[1] + 4, lo, right[2], right[3]);
            }
    }
    DEVICE_MEMBER void join(float* out) const {
        if constexpr (S::PACKED) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int at = (i >> 1) * 4 + (i & 1);
                out[i] = C::EXACT ? fmaf(c[0][at + 2], LO_INVERSE, c[0][at]) : c[0][at];
            }
        } else {
            UNROLL
            for (int i = 0; i < 8; i++) out[i] = C::EXACT ? fmaf(c[PARTS - 1][i], LO_INVERSE, c[0][i]) : c[0][i];
        }
    }
};
