// A model with several hidden layers in the fused kernel: each has a configuration of its own, with the same names as that of a
// single one. To a layer above the first the units of the layer below are what x is to the first: rows of halves in shared memory.
template <class... Layers> struct FusedStack {};
template <class Next, class... Others> struct NextLayer { typedef Next Type; };
template <class... Above> using LayerAbove = typename NextLayer<Above...>::Type;

// Hidden units are carried times this as halves, so that their lo parts are no subnormals.
constexpr float HIDDEN_SCALE = 16.0f;

// Blocks own units in eights. Some of a layer's last blocks may own fewer than the others, or none.
template <class C> DEVICE int eights_of_block(int rank) {
    constexpr int ALL = (C::WIDTH + 7) / 8, MOST = FusedSizes<C>::EIGHTS;
    const int rest = ALL - rank * MOST;
    return rest < 0 ? 0 : rest < MOST ? rest : MOST;
}

// Weights and optimizer state of a layer, and of those above it, in a thread's registers.
template <class C> struct FusedState {
    typedef FusedSizes<C> S;
    typename S::Parameters W, M, V;
};
template <class C, class... Above> struct StackState {
    FusedState<C> own;
    StackState<Above...> above;
};
template <class C> struct StackState<C> {
    FusedState<C> own;
};

// Shared memory of a layer and those above it.
template <class C> struct LayerMemory {
    typedef FusedSizes<C> S;
    alignas(128) char rows[C::BUFFERS][C::BATCH * S::ROW_BYTES];  // x, or the units of the layer below, of all blocks
    float slope[S::UNITS * C::BATCH];
    u32 dh[S::ROW_TILES][32][2 * S::EIGHTS];
    float b1[S::UNITS];
};
template <class C, class... Above> struct StackMemory {
    LayerMemory<C> own;
    StackMemory<Above...> above;
};
template <class C> struct StackMemory<C> {
    typedef FusedSizes<C> S;
    LayerMemory<C> own;
    float logits[2][C::BATCH * C::OUTPUTS];
    u32 hidden[S::UNITS * C::BATCH];
    u32 dlogits[C::BATCH * S::STRIDE];
    u32 w2[S::UNITS * S::STRIDE];
    float b2[2][16];
};

DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
template <class C, class... Above> DEVICE constexpr int most_units() {
    if constexpr (sizeof...(Above) == 0) return FusedSizes<C>::UNITS;
    else return larger(FusedSizes<C>::UNITS, most_units<Above...>());
}
// The same without the last layer, which sends its logits to the rows' owners.
template <class C, class... Above> DEVICE constexpr int most_units_below() {
    if constexpr (sizeof...(Above) < 2) return FusedSizes<C>::UNITS;
    else return larger(FusedSizes<C>::UNITS, most_units_below<Above...>());
}

template <class First, class... Above> struct StackShared {
    static constexpr int LAYERS = 1 + sizeof...(Above);
    StackMemory<First, Above...> layers;
    float partial[First::WARPS * most_units<First, Above...>() * First::BATCH];
    // Parts of a layer's gradient, one of each block. Two, which the layers take in turns: whoever sends parts for a layer has the
    // parts for the one above from all blocks, and they were sent after those for the one above that had been read.
    float parts[LAYERS > 2 ? 2 : 1][First::CLUSTER * most_units_below<First, Above...>() * First::BATCH];
    u32 failed[First::CLUSTER * First::WARPS];
    // Logits, dlogits, x[0], x[1]; then for each layer: rows from the layer below, parts of its gradient.
    alignas(8) u64 arrivals[4 + 2 * LAYERS];

    DEVICE_MEMBER Address rows_ready(int layer) { return shared_address(&arrivals[4 + 2 * layer]); }
    DEVICE_MEMBER Address parts_ready(int layer) { return shared_address(&arrivals[5 + 2 * layer]); }
    DEVICE_MEMBER Address x_ready(int slot) { return shared_address(&arrivals[2 + slot]); }
};

// What the code of one layer asks of shared memory; the last line is of the last layer alone.
template <class C> struct LayerView {
    typedef FusedSizes<C> S;
    float (*partial)[S::UNITS * C::BATCH];
    float* slope;
    u32 (*dh)[32][2 * S::EIGHTS];
    float* b1;
    u64* arrivals;
    float (*logits)[C::BATCH * C::OUTPUTS];
    u32 *hidden, *dlogits, *w2;
    float (*b2)[16];
};
template <class Shared, class C, class... Above> DEVICE LayerView<C> view_of(Shared& sm, StackMemory<C, Above...>& here) {
    LayerView<C> view = {(float (*)[FusedSizes<C>::UNITS * C::BATCH])sm.partial, here.own.slope, here.own.dh, here.own.b1, sm.arrivals};
    if constexpr (C::IS_LAST) {
        view.logits = here.logits;
        view.hidden = here.hidden;
        view.dlogits = here.dlogits;
        view.w2 = here.w2;
        view.b2 = here.b2;
    }
    return view;
}
