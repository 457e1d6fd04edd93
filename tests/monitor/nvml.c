// SPDX-License-Identifier: Apache-2.0
// Stands for the driver's libnvidia-ml.so.1, with the functions and structures of NVIDIA's public header.
//
// NVML_GPUS names a file with a line for each GPU: bytes in all, bytes in use, per cent at work, then processes as PID=BYTES.
// It is read anew at each call. Below zero, bytes in use mean a GPU that the driver has lost, per cent that it does not say,
// and bytes of a process that they are not known.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { LINE = 4096, MOST_PROCESSES = 64 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned int pid; unsigned long long bytes; unsigned int gpu_instance, compute_instance; } Process;
typedef struct { long long total, used, per_cent; Process processes[MOST_PROCESSES]; unsigned int count; } Gpu;

// Reads the GPU with a number, and returns how many there are.
static int read_gpu(unsigned int wanted, Gpu *gpu) {
    const char *path = getenv("NVML_GPUS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE];
    unsigned int number = 0;
    if (!file) return 0;
    for (; fgets(line, sizeof line, file); number++) {
        char *word = NULL;
        if (number != wanted || !gpu) continue;
        memset(gpu, 0, sizeof *gpu);
        gpu->total = atoll(strtok(line, " \n"));
        gpu->used = atoll(strtok(NULL, " \n"));
        gpu->per_cent = atoll(strtok(NULL, " \n"));
        while ((word = strtok(NULL, " \n")) && gpu->count < MOST_PROCESSES) {
            Process *process = &gpu->processes[gpu->count++];
            const long long bytes = atoll(strchr(word, '=') + 1);
            process->pid = (unsigned int)atoi(word);
            process->bytes = bytes < 0 ? ~0ULL : (unsigned long long)bytes;
        }
    }
    fclose(file);
    return (int)number;
}

static int find(void *device, Gpu *gpu) {
    const unsigned int number = (unsigned int)((size_t)device - 1);
    if (read_gpu(number, gpu) <= (int)number) return INVALID_ARGUMENT;
    return gpu->used < 0 ? GPU_IS_LOST : SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return getenv("NVML_GPUS") ? SUCCESS : UNKNOWN; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case INSUFFICIENT_SIZE: return "Insufficient Size";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "580.0");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)read_gpu(0, NULL);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int number, void **device) {
    Gpu gpu;
    *device = (void *)(size_t)(number + 1);
    return find(*device, &gpu);
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
    Gpu gpu;
    snprintf(name, length, "A GPU of a test");
    return find(device, &gpu);
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    Gpu gpu;
    snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012zu", (size_t)device);
    return find(device, &gpu);
}

int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *later) {
    (void)device;
    *now = *later = 0;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    Gpu gpu;
    const int code = find(device, &gpu);
    if (code != SUCCESS) return code;
    memory->total = (unsigned long long)gpu.total;
    memory->used = (unsigned long long)gpu.used;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    Gpu gpu;
    const int code = find(device, &gpu);
    if (code != SUCCESS) return code;
    if (gpu.per_cent < 0) return NOT_SUPPORTED;
    rates->gpu = (unsigned int)gpu.per_cent;
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, Process *processes) {
    Gpu gpu;
    const unsigned int room = *count;
    const int code = find(device, &gpu);
    if (code != SUCCESS) return code;
    *count = gpu.count;
    if (gpu.count > room) return INSUFFICIENT_SIZE;
    memcpy(processes, gpu.processes, gpu.count * sizeof *processes);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned int *count, Process *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}
