import ctypes as C, torch, glob, sys, time, statistics as st
torch.zeros(1,device='cuda')
src=open('../2026-11-22-h200-tf32/run.py').read()
exec(src[src.index('cu=C.CDLL'):src.index("mods={'':Mod")])
PROMO=2
def tmap(t,typ,dims,strides,box,swz=3):
    buf=C.create_string_buffer(192); a=C.addressof(buf); off=(-a)%64
    n=len(dims)
    ck(cu.cuTensorMapEncodeTiled(C.c_void_p(a+off),typ,n,C.c_void_p(t),(C.c_uint64*n)(*dims),(C.c_uint64*n)(*strides,0),(C.c_uint32*n)(*box),(C.c_uint32*n)(*([1]*n)),0,swz,PROMO,0),'encode')
    m=(C.c_uint8*128).from_buffer_copy(buf,off); return m
SM=132
class Direct:
    def __init__(s,mod,name,bm,stages,typ=11):
        s.bm=bm;s.typ=typ;s.shared=stages*(bm+128)*128+16*stages+896;s.f=mod.fn(name,s.shared)
    def __call__(s,a,b,c):
        m,k=a.shape;n=b.shape[1]
        ma=tmap(a.data_ptr(),s.typ,[k,m,1],[a.stride(0)*4]*2,[32,s.bm,1]);mb=tmap(b.data_ptr(),s.typ,[n,k,1],[b.stride(0)*4]*2,[32,32,1])
        tiles=(-(-m//s.bm))*(-(-n//128))
        launch(s.f,(min(tiles,SM),1,1),384,s.shared,[u32(m),u32(n),u32(k),ma,mb,u64(c.data_ptr()),u32(c.stride(0))])

class Tma:
    def __init__(s,mod,name,bm,stages):
        s.bm=bm;s.shared=stages*(bm+128)*128+16*stages+896;s.f=mod.fn(name,s.shared)
    def __call__(s,a,b,c,tb=False,alpha=1,beta=0,ops=0,bias=0):
        m,k=a.shape;n=b.shape[0] if tb else b.shape[1]
        ma=tmap(a.data_ptr(),11,[k,m,1],[a.stride(0)*4]*2,[32,s.bm,1])
        mb=tmap(b.data_ptr(),11,[k,n,1],[b.stride(0)*4]*2,[32,128,1]) if tb else tmap(b.data_ptr(),11,[n,k,1],[b.stride(0)*4]*2,[32,32,1])
        tiles=(-(-m//s.bm))*(-(-n//128))
        ep=(C.c_uint8*72)()
        if ops:
            struct.pack_into('<II',ep,0,ops,0); struct.pack_into('<Q',ep,32,bias)
        launch(s.f,(min(tiles,SM),1,1),384,s.shared,[u32(m),u32(n),u32(k),f32(alpha),ma,mb,f32(beta),u64(c.data_ptr()),u32(c.stride(0)),u32(1),u64(0),u32(0),u32(16 if tb else 0),ep])
T=Mod('proto.cubin')
D={g:Direct(T,'direct_256x128'+g,256,4) for g in ('','_g4','_t8','_t16')}
F={f'{p}{bm}':Tma(T,f'{p}_{bm}x128',bm,st) for p in ('tf32','nf') for bm,st in ((256,4),(192,5),(128,6),(64,8))}
def rne(t):
    x=t.view(torch.int32); return ((x+0xfff+((x>>13)&1))&~0x1fff).view(torch.float32)
import struct
for (m,n,k) in [(128,256,64),(1000,1004,1000),(129,132,4000),(300,516,36),(517,260,100)]:
    a=torch.randn(m,k,device='cuda');b=torch.randn(k,n,device='cuda');bt=b.t().contiguous();bias=torch.randn(n,device='cuda')
    r=rne(a).double()@rne(b).double();sc=a.abs().double()@b.abs().double()
    o=[]
    for nm,f in F.items():
        for tb in (0,1):
            if tb and k%4: continue
            c=torch.full((m,n),float('nan'),device='cuda');f(a,bt if tb else b,c,tb);torch.cuda.synchronize()
            c2=torch.ones(m,n+1,device='cuda')[:,:n];f(a,bt if tb else b,c2,tb,2,0.5,8,bias.data_ptr());torch.cuda.synchronize()
            o.append(f"{nm}{'NT'[tb]} {((c-r).abs()/sc).max().item():.1e} {((c2-(2*r+0.5+bias)).abs()/(sc+1)).max().item():.1e}")
    print(m,n,k,o,flush=True)
for N in (512,768,1024,1536,2048,3072,4096,8192,16384):
    big=N>=8192
    sets=[(torch.randn(N,N,device='cuda'),torch.randn(N,N,device='cuda'),torch.empty(N,N,device='cuda')) for _ in range(2 if big else 3)]
    cs={'tf32':tf32}
    ks=[k for k in F if N<1600 or not k.endswith('64')]
    if N>5000: ks=[k for k in ks if '256' in k or '192' in k]
    for kk in ks:
        cs[kk]=F[kk]
        if kk[0]=='t': cs[kk+'T']=lambda a,b,c,f=F[kk]: f(a,b,c,True)
    if N>1600:
        for g,f in D.items(): cs['d'+g]=f
    t=race(cs,*sets[0],target=0.003,reps=2 if N>9000 else 3 if big else 5,sets=sets)
    print(N,f"{t['tf32']*1e6:.1f}us",{k:round(t['tf32']/v,3) for k,v in t.items()},flush=True)
    if big:
        PROMO=3
        t=race({k:cs[k] for k in ('tf32','tf32256','d','d_t8','tf32256T')},*sets[0],target=0.003,reps=2,sets=sets)
        print(N,'promo 256',{k:round(t['tf32']/v,3) for k,v in t.items()},flush=True)
        PROMO=2
m,n,k=4095,4097,4099
k4=4100
sets=[(torch.randn(m,k4,device='cuda')[:,:k],torch.randn(k,k4,device='cuda')[:,:n],torch.empty(m,n,device='cuda')) for _ in range(3)]
un=[(torch.randn(m,k,device='cuda'),torch.randn(k,n,device='cuda'),torch.empty(m,n,device='cuda')) for _ in range(1)]
st0=race({'tf32':tf32},*un[0],reps=3,sets=un)
t=race({k:F[k] for k in ('tf32256','tf32192','tf32128')},*sets[0],target=0.003,reps=5,sets=sets)
print('odd, aligned ld, without copies',f"{st0['tf32']*1e6:.1f}us",{k:round(st0['tf32']/v,3) for k,v in t.items()},flush=True)
