// cuda_backend.cu, compiled for the emulator.
#include "stage2_cuda/cuda_backend.cu"
