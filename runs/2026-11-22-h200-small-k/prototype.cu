#define U unsigned
#define L _Pragma("unroll") for(int
__device__ void cp(U t,const float*f,bool p){asm volatile("cp.async.ca.shared.global [%0],[%1],4,%2;"::"r"(t),"l"(f),"r"(p?4:0));}
template<int BM,int BN,int WM,int WN,int TM,int TN,int MB,int UN>
__global__ __launch_bounds__(BM/TM*(BN/TN),MB) void g(U m,U n,U k,float al,const float*a,U lda,const float*b,U ldb,float be,float*c,U ldc){
constexpr int T=BM/TM*(BN/TN),LN=WN/TN,LM=32/LN,WX=BN/WN,LA=20,SA=BM*LA,SB=16*BN,RA=T/16,CB=BN<32?BN:32,RB=T/CB;
extern __shared__ float s[];U t=threadIdx.x,w=t/32,l=t%32,R=blockIdx.y*BM,C=blockIdx.x*BN,r=w/WX*WM+l/LN,q=w%WX*WN+l%LN;
U ar=t/16,ac=t%16,br=t/CB,bc=t%CB;const float*fa=a+(size_t)(R+ar)*lda+ac,*fb=b+(size_t)br*ldb+C+bc;U sm=__cvta_generic_to_shared(s);
auto copy=[&](int left,int st){if(left>0){
L i=0;i<BM;i+=RA)cp(sm+4*(st*SA+(ar+i)*LA+ac),fa+(size_t)i*lda,R+ar+i<m&&(int)ac<left);
L i=0;i<16;i+=RB)if(RB<=16||br<16)
L j=0;j<BN;j+=CB)cp(sm+4*(3*SA+st*SB+(br+i)*BN+bc+j),fb+(size_t)i*ldb+j,(int)(br+i)<left&&C+bc+j<n);
fa+=16;fb+=(size_t)16*ldb;}asm volatile("cp.async.commit_group;");};
float d[TM][TN]={};copy(k,0);copy((int)k-16,1);int st=0;
for(int left=k;left>0;left-=16){asm volatile("cp.async.wait_group 1;");__syncthreads();copy(left-32,st?st-1:2);
const float*A=s+st*SA+r*LA,*B=s+3*SA+st*SB+q;int e=left<16?left:16;
auto P=[&](int x){float f[4][TN];
L y=0;y<4;y++)
L j=0;j<TN;j++)f[y][j]=B[(x+y)*BN+j*LN];
L i=0;i<TM;i++){float4 v=*(float4*)(A+i*LM*LA+x);float h[4]={v.x,v.y,v.z,v.w};
L y=0;y<4;y++)
L j=0;j<TN;j++)d[i][j]+=h[y]*f[y][j];}};
if(UN&&left>=16){L x=0;x<16;x+=4)P(x);}else{
#pragma unroll 1
for(int x=0;x<e;x+=4)P(x);}
st=st==2?0:st+1;}
c+=(size_t)(R+r)*ldc+C+q;
L i=0;i<TM;i++)if(R+r+i*LM<m)
L j=0;j<TN;j++)if(C+q+j*LN<n){float o=be!=0?be*c[(size_t)i*LM*ldc+j*LN]:0;c[(size_t)i*LM*ldc+j*LN]=al*d[i][j]+o;}}
