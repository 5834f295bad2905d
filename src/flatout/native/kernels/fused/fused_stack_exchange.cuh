// Between two hidden layers: units go to all blocks, and the blocks' parts of their gradient come back to the units' owner.

// The units of this block, all rows, from the warps' sums: into this block's own rows of the layer above.
template <class C, class Next>
DEVICE void stack_units(const LayerView<C>& sm, const FusedPlace<C>& me, float h_unit, char* rows, bool& bad) {
    typedef FusedSizes<C> S;
    typedef FusedSizes<Next> Above;
    constexpr int TASKS = S::ROW_TILES * S::UNITS / 4;
    UNROLL
    for (int first = 0; first < TASKS; first += C::WARPS) {
        const int task = first + me.warp, tile = task % S::ROW_TILES, unit = 4 * (task / S::ROW_TILES) + me.t;
        if (task < TASKS) {
            const int at = at_unit<C>(unit, tile, me.g);
            const float z = fmaf(sum_of_warps<C>(sm, at), h_unit, sm.b1[unit]);
            float h = C::Activation::value(z), slope = C::Activation::slope(z, h);
            if (is_padding<C>(me, unit)) h = slope = 0.0f;
            sm.slope[at] = slope;
            h *= HIDDEN_SCALE;
            bad |= is_outside(z) || is_outside(h);
            u32 hi, lo;
            split_pair<C::EXACT>(h, 0.0f, 1.0f, hi, lo);
            u16* half = (u16*)(rows + (8 * tile + me.g) * Above::ROW_BYTES) + me.rank * S::UNITS + unit;
            if (unit < 8 * eights_of_block<C>(me.rank)) {
                half[0] = (u16)hi;
                if constexpr (Next::PLANES == 2) half[Above::PLANE / 2] = (u16)lo;
            }
        }
    }
}

// These units to all other blocks, eight halves at a time.
template <class C, class Next> DEVICE void stack_gather(const FusedPlace<C>& me, const char* rows, Address ready) {
    typedef FusedSizes<C> S;
    typedef FusedSizes<Next> Above;
    constexpr int THREADS_HERE = C::WARPS * 32, CHUNKS = C::BATCH * Next::PLANES * S::EIGHTS;
    constexpr int GROUPS = THREADS_HERE < 2 * CHUNKS ? 1 : THREADS_HERE / CHUNKS;
    const int thread = 32 * me.warp + me.lane, group = GROUPS == 1 ? 0 : thread / CHUNKS;
    const int eights = eights_of_block<C>(me.rank);
    if (group >= GROUPS) return;
    UNROLL
    for (int first = 0; first < CHUNKS; first += THREADS_HERE) {
        const int chunk = first + (GROUPS == 1 ? thread : thread % CHUNKS);
        const int row = chunk % C::BATCH, plane = chunk / C::BATCH % Next::PLANES, eight = chunk / (C::BATCH * Next::PLANES);
        if (chunk < CHUNKS && eight < eights) {
            const char* here = rows + row * Above::ROW_BYTES + plane * Above::PLANE + (me.rank * S::UNITS + 8 * eight) * 2;
            const FourWords words = load_four(here);
            const Address address = shared_address(here);
            UNROLL
            for (int i = 0; i < C::CLUSTER - 1; i += GROUPS) {
                const int block = (me.rank + 1 + i + group) % C::CLUSTER;
                if (i + group < C::CLUSTER - 1) push_four(remote(address, block), words, remote(ready, block));
            }
        }
    }
}
template <class C, class Next> DEVICE int bytes_of_gather(int rank) {
    return ((C::WIDTH + 7) / 8 - eights_of_block<C>(rank)) * 16 * Next::PLANES * C::BATCH;
}

// What this block's units say of the gradient of the layer below: a part of it, to the owners of its units.
template <class C, class Below>
DEVICE void stack_scatter(const FusedPlace<C>& me, const typename FusedSizes<C>::Parameters& W,
                          const typename FusedSizes<C>::Gradient& dh_hi, const typename FusedSizes<C>::Gradient& dh_lo,
                          Address parts, Address ready) {
    typedef FusedSizes<C> S;
    typedef FusedSizes<Below> B;
    UNROLL
    for (int p = 0; p < S::SLOTS; p++)
        if (p < S::TILES || me.has_extra) {
            const int tile = p < S::TILES ? S::TILES * me.warp + p : S::TILES * C::WARPS + me.extra;
            if (16 * tile >= Below::WIDTH) continue;
            // The kernel's tiles with rows and columns exchanged: 16 features by 16 units, or (PACKED) by 8 units hi and lo.
            u32 hi[S::UNIT_TILES][4], lo[S::UNIT_TILES][4];
            UNROLL
            for (int u = 0; u < S::UNIT_TILES; u++) {
                constexpr int H = S::PER_HALF;
                u32 h[4], l[4];
                if constexpr (S::PACKED) {
                    split_pair<C::EXACT>(W[u][p][0], W[u][p][1], 1.0f, h[0], h[1]);
                    split_pair<C::EXACT>(W[u][p][2], W[u][p][3], 1.0f, h[2], h[3]);
                    l[0] = l[1] = l[2] = l[3] = 0;
                } else {
                    split_pair<C::EXACT>(W[u][p][0], W[u][p][1], 1.0f, h[0], l[0]);
                    split_pair<C::EXACT>(W[u][p][H - 2], W[u][p][H - 1], 1.0f, h[1], l[1]);
                    split_pair<C::EXACT>(W[u][p][H], W[u][p][H + 1], 1.0f, h[2], l[2]);
                    split_pair<C::EXACT>(W[u][p][2 * H - 2], W[u][p][2 * H - 1], 1.0f, h[3], l[3]);
                }
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const int from = (i & 1) << 1 | i >> 1;
                    hi[u][i] = transpose_tile(h[from]);
                    lo[u][i] = C::EXACT && !S::PACKED ? transpose_tile(l[from]) : 0;
                }
            }
            UNROLL
            for (int j = 0; j < S::ROW_TILES; j++) {
                float c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};
                const int k = j >> 1, i = (j & 1) * 2;
                UNROLL
                for (int u = 0; u < S::UNIT_TILES; u++) {
                    const u32 upper = transpose_tile(dh_hi[u][k][i]);
                    if constexpr (S::PACKED) {
                        multiply_tiles(c, hi[u], upper, upper);
                        if constexpr (C::EXACT) multiply_tiles(d, hi[u], transpose_tile(dh_hi[u][k][i + 1]), 0);
                    } else {
                        const u32 lower = transpose_tile(dh_hi[u][k][i + 1]);
                        multiply_tiles(c, hi[u], upper, lower);
                        if constexpr (C::EXACT) {
                            multiply_tiles(c, lo[u], upper, lower);
                            multiply_tiles(d, hi[u], transpose_tile(dh_lo[u][k][i]), transpose_tile(dh_lo[u][k][i + 1]));
                        }
                    }
                }
                UNROLL
                for (int half = 0; half < 2; half++) {
                    const int eight = 16 * tile + 8 * half, owner = eight / B::UNITS, unit = eight % B::UNITS + me.g;
                    const float first = fmaf(d[2 * half], LO_INVERSE, c[2 * half]) * (1.0f / W_SCALE);
                    const float second = fmaf(d[2 * half + 1], LO_INVERSE, c[2 * half + 1]) * (1.0f / W_SCALE);
                    const Address to = parts + (me.rank * (B::UNITS * C::BATCH) + at_unit<Below>(unit, j, 2 * me.t)) * 4;
                    if (eight < Below::WIDTH) push_pair(remote(to, owner), bits_of(first), bits_of(second), remote(ready, owner));
                }
            }
        }
}
template <class C> DEVICE int bytes_of_scatter(int rank) { return eights_of_block<C>(rank) * 8 * C::BATCH * 4 * C::CLUSTER; }

// The gradient of this block's units, when all parts of it have come: added up in the order of the blocks, as a left operand.
template <class C>
DEVICE void stack_gradient(const LayerView<C>& sm, const FusedPlace<C>& me, const float* parts, Address ready, int slot,
                           bool& bad) {
    typedef FusedSizes<C> S;
    constexpr int TASKS = S::ROW_TILES * S::EIGHTS;
    if (me.warp < TASKS) arrival_wait(ready, slot);
    UNROLL
    for (int task = me.warp; task < TASKS; task += C::WARPS) {
        const int tile = task % S::ROW_TILES, eight = task / S::ROW_TILES, at = at_unit<C>(8 * eight + me.g, tile, 2 * me.t);
        float v0 = 0.0f, v1 = 0.0f;
        if (eight < eights_of_block<C>(me.rank)) {
            float a[4] = {0, 0, 0, 0}, slope_0, slope_1;
            UNROLL
            for (int i = 0; i < C::CLUSTER; i++) {
                float first, second;
                load_two(parts + i * (S::UNITS * C::BATCH) + at, first, second);
                a[2 * (i & 1)] += first;
                a[2 * (i & 1) + 1] += second;
            }
            load_two(&sm.slope[at], slope_0, slope_1);
            v0 = (a[0] + a[2]) * slope_0;
            v1 = (a[1] + a[3]) * slope_1;
        }
        bad |= is_outside(v0) || is_outside(v1);
        u32 hi, lo;
        split_pair<C::EXACT>(v0, v1, LO, hi, lo);
        store_two(&sm.dh[tile][me.lane][2 * eight], hi, lo);
    }
}
