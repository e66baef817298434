#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <algorithm>
#define CK(x) do{CUresult r=(x);if(r){const char*s;cuGetErrorString(r,&s);printf("%s: %s\n",#x,s);exit(1);}}while(0)
struct G{const char*name;int bm,bn,bk,slices,stages,threads;};
G gs[]={{"tile_64x128",64,128,32,2,3,256},{"tile_64x64",64,64,64,4,3,256},{"tile_128x128x16",128,128,16,1,4,256},{"tile_64x64x16",64,64,16,1,5,128},{"skinny_n_32x1",32,1,128,1,6,256},{"skinny_n_32x4",32,4,128,1,6,256}};
struct Ep{unsigned op,ld;void*p[5];unsigned long long s[3];};
int main(int c,char**v){
  CK(cuInit(0));CUdevice d;CK(cuDeviceGet(&d,0));CUcontext x;CK(cuDevicePrimaryCtxRetain(&x,d));CK(cuCtxSetCurrent(x));
  std::vector<CUmodule> mods;for(int i=1;i<c;i++){CUmodule m;CK(cuModuleLoad(&m,v[i]));mods.push_back(m);}
  size_t BYTES=(size_t)2<<30;CUdeviceptr pool,part,cnt,flush;CK(cuMemAlloc(&pool,BYTES));CK(cuMemAlloc(&part,(size_t)256<<20));CK(cuMemAlloc(&cnt,1<<20));CK(cuMemsetD8(cnt,0,1<<20));
  {std::vector<float> h(BYTES/4);unsigned s=1;for(auto&f:h){s=s*1664525+1013904223;f=(int)(s>>9)/8388608.0f-0.5f;}CK(cuMemcpyHtoD(pool,h.data(),BYTES));}
  struct T{const char*k;int un,ta,tb,m,n,kk,splits;};
  T ts[]={{"tile_64x128",1,0,1,128,1760,1760,4},{"tile_64x128",1,0,1,64,7680,2560,4},{"tile_64x128",1,0,1,64,4096,4096,8},{"tile_64x128",0,0,0,1024,1024,1024,1},{"tile_64x128",0,1,0,1024,1024,1024,1},{"tile_64x128",1,0,0,1025,1023,1023,1},{"tile_64x128",0,0,0,128,1760,1760,4},
  {"tile_64x64",1,0,1,128,1760,1760,2},{"tile_64x64",0,0,0,8457,36,4096,1},{"tile_64x64",1,0,1,8457,35,4096,1},{"tile_64x64",0,0,0,1024,1024,1024,1},{"tile_64x64",1,0,0,1107,391,573,1},
  {"tile_128x128x16",1,0,1,128,4096,4096,8},{"tile_128x128x16",0,0,0,4096,4096,1024,1},{"tile_128x128x16",1,0,1,2048,2048,1024,1},{"tile_128x128x16",0,1,0,2048,2048,1024,1},
  {"tile_64x64x16",1,0,0,9022,414,142,1},{"tile_64x64x16",0,0,0,9022,416,144,1},{"tile_64x64x16",1,0,1,128,3072,1024,4},{"tile_64x64x16",0,1,0,1024,1024,512,1},{"skinny_n_32x1",1,0,0,2856,1,3533,1},{"skinny_n_32x1",1,0,0,2856,1,3533,2},{"skinny_n_32x1",1,0,0,2856,1,3533,3},{"skinny_n_32x1",1,0,0,2856,1,3533,4},{"skinny_n_32x1",1,0,0,2856,1,3533,5},{"skinny_n_32x1",1,0,0,2856,1,3533,7},{"skinny_n_32x1",1,0,0,2856,1,3533,9},{"skinny_n_32x1",1,0,0,2856,1,3533,14},{"skinny_n_32x1",0,0,0,2856,1,3536,1},{"skinny_n_32x1",0,0,0,2856,1,3536,2},{"skinny_n_32x1",0,0,0,2856,1,3536,3},{"skinny_n_32x1",0,0,0,2856,1,3536,4},{"skinny_n_32x1",0,0,0,2856,1,3536,7},{"skinny_n_32x1",1,0,0,1505,1,3045,1},{"skinny_n_32x1",1,0,0,1505,1,3045,2},{"skinny_n_32x1",1,0,0,1505,1,3045,5}};
  for(auto&t:ts){G*g=0;for(auto&q:gs)if(!strcmp(q.name,t.k))g=&q;
    unsigned m=t.m,n=t.n,k=t.kk;unsigned lda=t.ta?m:k,ldb=t.tb?k:n,ldc=n;size_t ea=((size_t)m*k+63)/64*64,eb=((size_t)k*n+63)/64*64,ec=((size_t)m*n+63)/64*64;
    size_t set=ea+eb+ec;int sets=std::min<size_t>(12,std::max<size_t>(1,(size_t)(120<<20)/(set*4)+1));if(sets*set*4>BYTES)sets=1;
    unsigned steps=(k+g->bk-1)/g->bk,depth=(steps+t.splits-1)/t.splits*g->bk;
    unsigned sh=std::max({g->stages*(g->name[0]=='s'?g->bm*g->bk+g->bn*(g->bk+4):g->bk/2*(2*g->bm+4)+g->bk*(g->bn+4)),g->slices>1?g->slices*g->bm*g->bn:0,g->bm*(g->bn+4)})*4;
    std::string nm=std::string(t.k)+(t.un?"_unaligned":"");
    printf("%-16s %s %c%c %5ux%5ux%5u /%d ",t.k,t.un?"un":"al","NT"[t.ta],"NT"[t.tb],m,n,k,t.splits);fflush(stdout);
    std::vector<std::vector<float>> ms(mods.size());std::vector<std::vector<float>> res(mods.size());
    std::vector<CUfunction> fs;for(auto mo:mods){CUfunction f;if(cuModuleGetFunction(&f,mo,nm.c_str()))continue;CK(cuFuncSetAttribute(f,CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,sh));fs.push_back(f);}
    CUevent e0,e1;cuEventCreate(&e0,0);cuEventCreate(&e1,0);
    auto go=[&](CUfunction f,int s){float al=1,be=0;unsigned lay=(t.ta?8:0)|(t.tb?16:0),sp=0;unsigned long long z=0;Ep ep;memset(&ep,0,sizeof ep);
      CUdeviceptr a=pool+s*set*4,b=a+ea*4,cc=b+eb*4;
      void*P[]={&m,&n,&k,&al,&a,&lda,&b,&ldb,&be,&cc,&ldc,&depth,&part,&cnt,&sp,&z,&z,&z,&lay,&ep};
      CK(cuLaunchKernel(f,(n+g->bn-1)/g->bn,(m+g->bm-1)/g->bm,t.splits,g->threads,1,1,sh,0,P,0));};
    for(int r=0;r<6;r++)for(size_t i=0;i<fs.size();i++){int N=24;if(r==0){go(fs[i],0);res[i].resize((size_t)m*n);CK(cuMemcpyDtoH(res[i].data(),pool+(ea+eb)*4,(size_t)m*n*4));}
      for(int q=0;q<4;q++)go(fs[i],q%sets);
      cuEventRecord(e0,0);for(int q=0;q<N;q++)go(fs[i],q%sets);cuEventRecord(e1,0);CK(cuEventSynchronize(e1));float f;cuEventElapsedTime(&f,e0,e1);ms[i].push_back(f/N);}
    float b0=0;for(size_t i=0;i<fs.size();i++){std::sort(ms[i].begin(),ms[i].end());float me=(ms[i][2]+ms[i][3])/2*1e3;if(!i)b0=me;printf("| %7.2f us %+5.1f%%%s",me,100*(b0/me-1),memcmp(res[i].data(),res[0].data(),res[0].size()*4)?" DIFF":"");}
    printf("  %.1f TF\n",2.0*m*n*k/b0*1e-6);fflush(stdout);
  }
}
