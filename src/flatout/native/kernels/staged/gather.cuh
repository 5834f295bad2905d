// A step's rows, taken from the whole data through the epoch's order. clock[0] is where in the order the step begins.
template <int FEATURES, class From, class To>
DEVICE void gather(const From* data, const int* order, const int* clock, To* batch, int rows) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * FEATURES) return;
    const long long row = order[clock[0] + i / FEATURES];
    // By way of float, as Keras' losses read labels.
    batch[i] = (To)(float)data[row * FEATURES + i % FEATURES];
}
