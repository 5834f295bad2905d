// Appended to the kernels of a fused program: runs one launch of a cluster on the buffers of a job file, and writes them back.
static int read_int(FILE* file) {
    int value = 0;
    if (fread(&value, sizeof(value), 1, file) != 1) abort();
    return value;
}

int main(int, char** names) {
    FILE* job = fopen(names[1], "rb");
    const int buffers = read_int(job);
    char** memory = new char*[buffers];
    int* sizes = new int[buffers];
    for (int n = 0; n < buffers; n++) {
        sizes[n] = read_int(job);
        memory[n] = (char*)aligned_alloc(64, (sizes[n] + 127) / 64 * 64);
        if (fread(memory[n], 1, sizes[n], job) != (size_t)sizes[n]) abort();
    }
    const int kernel = read_int(job), cluster = read_int(job), threads = read_int(job), shared_bytes = read_int(job);
    void* arguments[64];
    for (int n = 0, count = read_int(job); n < count; n++) arguments[n] = memory[read_int(job)];
    fclose(job);
    flatout_run_cluster(kernel, cluster, threads, shared_bytes, arguments);
    FILE* out = fopen(names[2], "wb");
    for (int n = 0; n < buffers; n++) fwrite(memory[n], 1, sizes[n], out);
    fclose(out);
    return 0;
}
