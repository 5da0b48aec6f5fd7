// The ladders, compiled for the emulator.
#include "stage2_cuda/ladders/attention.cu"
#include "stage2_cuda/ladders/layernorm.cu"
#include "stage2_cuda/ladders/matmul.cu"
