package redisrelay
import ("testing";"context";"github.com/redis/go-redis/v9";"time";"fmt";"slices";"strings";"syscall")
func BenchmarkNumbered(b *testing.B){ r:=&rig{}; l:=r.lines(1)[0]; b.SetBytes(int64(len(l))); for b.Loop(){ numbered(l)} }
func BenchmarkNoLull(b *testing.B){ lull=0; compare(b,2000,1)}
func BenchmarkNoLullBurst(b *testing.B){ lull=0; compare(b,20000,100)}
func BenchmarkLull(b *testing.B){ lull=2*time.Millisecond; compare(b,2000,1)}
func BenchmarkLullBurst(b *testing.B){ lull=2*time.Millisecond; compare(b,20000,100)}
func BenchmarkParts(b *testing.B){
	r:=newRig(b)
	ctx:=context.Background()
	// raw xadd->xread
	r.raw.XAdd(ctx,&redis.XAddArgs{Stream:"s",Values:[]any{"payload","x"}})
	got:=make(chan struct{},100)
	cl := r.queue.client(2, grace)
	go func(){ last:="$"; for { s,err:=cl.XRead(ctx,&redis.XReadArgs{Streams:[]string{"s",last},Count:64,Block:time.Second}).Result(); if err!=nil {if err==redis.Nil{continue}; return}; for _,m:=range s[0].Messages{last=m.ID; got<-struct{}{}} } }()
	time.Sleep(100*time.Millisecond)
	med := func(f func()) time.Duration { var d []time.Duration; for range 3000 { t:=time.Now(); f(); d=append(d,time.Since(t))}; slices.Sort(d); return d[1500]}
	for range 3 {
	lines:=r.lines(1)
	fmt.Println("raw pub", med(func(){ r.rawRound(b,lines,1)}))
	fmt.Println("ours", med(func(){ r.queueRound(b,lines,1)}))
	fmt.Println("xadd->xread", med(func(){ r.raw.XAdd(ctx,&redis.XAddArgs{Stream:"s",MaxLen:10000,Approx:true,Values:[]any{"payload",lines[0]}}); <-got}))
	fmt.Println("publish only, raw", med(func(){ r.raw.Publish(ctx,"nobody",lines[0])}))
	fmt.Println("script only", med(func(){ publishScript.Run(ctx,r.raw,[]string{"other:log"},"other","10000","","","","",lines[0]).StringSlice() }))
	fmt.Println("ping", med(func(){ r.raw.Ping(ctx) }))
	}
	b.SkipNow()
}

func TestCPU(t *testing.T){
	testing.Benchmark(func(b *testing.B){
		r:=newRig(b)
		ctx:=context.Background()
		cpu:=func() float64 { s,_:=r.raw.Info(ctx,"cpu").Result(); var u,v float64; for _,l:=range strings.Split(s,"\r\n"){ fmt.Sscanf(l,"used_cpu_sys_main_thread:%f",&u); fmt.Sscanf(l,"used_cpu_user_main_thread:%f",&v)}; return u+v}
		own:=func() float64 { var ru syscall.Rusage; syscall.Getrusage(0,&ru); return float64(ru.Utime.Sec+ru.Stime.Sec)+float64(ru.Utime.Usec+ru.Stime.Usec)/1e6 }
		meas:=func(name string, n int, f func()) { c,o:=cpu(),own(); t:=time.Now(); f(); e:=time.Since(t); fmt.Printf("%-22s wall %5.1f redis %5.1f own %5.1f us/msg\n",name, e.Seconds()/float64(n)*1e6,(cpu()-c)/float64(n)*1e6,(own()-o)/float64(n)*1e6)}
		for range 2 {
		l:=r.lines(5000)
		meas("raw seq",5000,func(){r.rawRound(b,l,1)})
		for _, p := range []time.Duration{0,2*time.Millisecond} { lull=p
		meas(fmt.Sprint("ours seq ",p),5000,func(){r.queueRound(b,l,1)})}
		l=r.lines(20000)
		meas("raw burst",20000,func(){r.rawRound(b,l,100)})
		for _, p := range []time.Duration{0,2*time.Millisecond} { lull=p
		meas(fmt.Sprint("ours burst ",p),20000,func(){r.queueRound(b,l,100)})}
		}
		b.SkipNow()
	})
}
