// Appended to the kernels of a program: runs the launches of a job file on the buffers in it, and writes the buffers back.
static int read_int(FILE* file) {
    int value = 0;
    if (fread(&value, sizeof(value), 1, file) != 1) abort();
    return value;
}

int main(int count, char** names) {
    FILE* job = fopen(names[1], "rb");
    const int buffers = read_int(job);
    char** memory = new char*[buffers];
    int* sizes = new int[buffers];
    for (int n = 0; n < buffers; n++) {
        sizes[n] = read_int(job);
        memory[n] = (char*)aligned_alloc(64, (sizes[n] + 127) / 64 * 64);
        if (fread(memory[n], 1, sizes[n], job) != (size_t)sizes[n]) abort();
    }
    const int launches = read_int(job), repeat = read_int(job);
    FlatoutLaunch* all = new FlatoutLaunch[launches];
    void** arguments = new void*[launches * 64];
    int* rows = new int[launches];
    for (int n = 0, next = 0; n < launches; n++) {
        FlatoutLaunch& one = all[n];
        one.kernel = read_int(job);
        one.grid_x = read_int(job);
        one.grid_y = read_int(job);
        one.grid_z = read_int(job);
        one.threads = read_int(job);
        one.cluster = read_int(job);
        one.shared_bytes = read_int(job);
        one.first_argument = next;
        rows[n] = read_int(job);
        for (int left = read_int(job); left > 0; left--) {
            const int buffer = read_int(job), offset = read_int(job);
            arguments[next++] = buffer < 0 ? (void*)&rows[n] : memory[buffer] + offset;
        }
    }
    fclose(job);
    flatout_run(all, launches, arguments, repeat);
    FILE* out = fopen(names[2], "wb");
    for (int n = 0; n < buffers; n++) fwrite(memory[n], 1, sizes[n], out);
    fclose(out);
    // The threads wait for ever.
    fflush(nullptr);
    return 0;
}
