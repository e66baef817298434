#include <cstdio>
#include <cuda_runtime.h>
// cycles per LDS.128 per SM with 8 warps, for lane->quad maps
template<int MAP,int W> __device__ int addr(int lane){
  int q;
  if(MAP==0) q=lane/8;            // A of 4x8, plain
  if(MAP==1) q=lane%8;            // B of 4x8, plain
  if(MAP==2) q=lane/16*2+lane%2;  // A interleaved
  if(MAP==3) q=lane/2%8;          // B interleaved
  if(MAP==4) q=lane;              // all different
  if(MAP==5) q=0;
  if(MAP==6) q=lane/4;  // 8x4 A plain
  if(MAP==7) q=lane%4;  // 8x4 B plain
  if(MAP==8) q=lane/8*2+lane%2; // 8x4 A interleaved
  if(MAP==9) q=lane/2%4; // 8x4 B int
  return q*W;
}
template<int MAP,int W> __global__ void k(long long*out,float*sink){
  __shared__ __align__(16) float s[8192];
  int lane=threadIdx.x%32;
  for(int i=threadIdx.x;i<8192;i+=blockDim.x)s[i]=i;
  __syncthreads();
  unsigned a=(unsigned)__cvta_generic_to_shared(s)+addr<MAP,W>(lane)*4;
  float r=0; 
  long long t0=clock64();
  for(int it=0;it<64;it++){
#pragma unroll
    for(int j=0;j<16;j++){
      float x=0,y=0,z=0,w=0;
      if(W==4) asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];":"=f"(x),"=f"(y),"=f"(z),"=f"(w):"r"(a+j*512));
      else if(W==2) asm volatile("ld.shared.v2.f32 {%0,%1},[%2];":"=f"(x),"=f"(y):"r"(a+j*512));
      else asm volatile("ld.shared.f32 %0,[%1];":"=f"(x):"r"(a+j*512));
      r+=x; if(W==4) r+=w;
    }
  }
  __syncthreads();
  long long t1=clock64();
  if(threadIdx.x==0)out[blockIdx.x]=t1-t0;
  sink[blockIdx.x*blockDim.x+threadIdx.x]=r;
}
// LDGSTS: K along lanes of a ROWS x COLS arrangement, from an L2-resident matrix
template<int COLS,int BYTES> __global__ void g(const float*p,long long*out,int ld,int iters){
  extern __shared__ __align__(16) float s[];
  int tid=threadIdx.x, lane=tid%32,warp=tid/32;
  const int EL=BYTES/4;
  int row=lane/COLS, col=lane%COLS*EL;
  const int R=32/COLS;
  unsigned a=(unsigned)__cvta_generic_to_shared(s)+tid*BYTES;
  const float*q=p+(size_t)(blockIdx.x%8*64+warp*R+row)*ld+col;
  long long t0=clock64();
  for(int it=0;it<iters;it++){
    // a step: 64 rows x 32 columns... walk rows then columns
#pragma unroll
    for(int j=0;j<16/EL;j++){
      const float*f=q+(size_t)(j*8*R%64)*ld+(j*8*R/64)*COLS*EL;
      if(BYTES==16) asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"(a+j*256*BYTES),"l"(f):"memory");
      else asm volatile("cp.async.ca.shared.global [%0],[%1],%2;"::"r"(a+j*256*BYTES),"l"(f),"n"(BYTES):"memory");
    }
    asm volatile("cp.async.commit_group;":::"memory");
    asm volatile("cp.async.wait_group 2;":::"memory");
    q+=32;
  }
  asm volatile("cp.async.wait_group 0;":::"memory");
  __syncthreads();
  long long t1=clock64();
  if(tid==0)out[blockIdx.x]=t1-t0;
}
long long*o;float*sk;
template<int M,int W> void run(const char*n){ k<M,W><<<132,256>>>(o,sk);k<M,W><<<132,256>>>(o,sk);long long h;cudaMemcpy(&h,o,8,cudaMemcpyDeviceToHost);printf("LDS.%d map %s: %.2f cycles per warp load\n",W*32,n,h/(64.0*16*8));}
template<int C,int B> void rg(const float*p,int ld){ auto f=g<C,B>; cudaFuncSetAttribute(f,cudaFuncAttributeMaxDynamicSharedMemorySize,65536); int it=64; for(int i=0;i<3;i++) f<<<132,256,65536>>>(p,o,ld,it); long long h;cudaMemcpy(&h,o,8,cudaMemcpyDeviceToHost);printf("LDGSTS %d B, %d along k: %.1f cycles per step of 64x64 (4096 el, 256 thr), %.2f per warp copy  %s\n",B,C,h/(double)it,h/(double)it/(8*16/(B/4)),cudaGetErrorString(cudaGetLastError()));}
int main(){cudaMalloc(&o,8*1024);cudaMalloc(&sk,4*132*256);float*p;cudaMalloc(&p,(size_t)1024*4096*4);cudaMemset(p,0,(size_t)1024*4096*4);
run<0,4>("A 4x8 plain");run<1,4>("B 4x8 plain");run<2,4>("A 4x8 inter");run<3,4>("B 4x8 inter");run<4,4>("all different");run<5,4>("all same");run<6,4>("A 8x4 plain");run<7,4>("B 8x4 plain");run<8,4>("A 8x4 inter");run<9,4>("B 8x4 inter");
run<0,2>("A 4x8 plain");run<1,2>("B 4x8 plain");run<2,2>("A inter");run<3,2>("B inter");run<4,1>("all different");
for(int ld: {2560,2561}){printf("ld %d\n",ld); rg<32,4>(p,ld);rg<16,4>(p,ld);rg<8,4>(p,ld); if(ld%4==0){rg<16,8>(p,ld);rg<8,8>(p,ld);rg<8,16>(p,ld);rg<16,16>(p,ld);}}
}
