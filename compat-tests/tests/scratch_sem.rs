use compat_tests::store::Store;
use std::time::{Duration, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use redisson_rate_limiter::SemaphoreOptions;

#[test]
fn throughput() {
    let store = Store::server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = store.client();
        for plain in [false, true] {
        for (tasks, permits) in [(1u64, 10u64), (64, 10), (64, 64), (1000, 10), (1000, 1000)] {
            let name = format!("s{plain}{tasks}-{permits}");
            let s = if plain { client.semaphore(&name) } else { client.concurrency(&name) }.unwrap();
            s.try_set_permits(permits).await.unwrap();
            let done = Arc::new(AtomicU64::new(0));
            let holders = Arc::new(AtomicU64::new(0));
            let most = Arc::new(AtomicU64::new(0));
            let end = Instant::now() + Duration::from_secs(2);
            let all: Vec<_> = (0..tasks).map(|_| { let (s, done, holders, most) = (s.clone(), done.clone(), holders.clone(), most.clone()); tokio::spawn(async move {
                while Instant::now() < end {
                    let p = s.acquire(1).await.unwrap();
                    most.fetch_max(holders.fetch_add(1, Relaxed) + 1, Relaxed);
                    done.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                    holders.fetch_sub(1, Relaxed);
                    p.release().await.unwrap();
                }
            })}).collect();
            for t in all { t.await.unwrap(); }
            println!("plain {plain} tasks {tasks} permits {permits}: {} pairs/s, most {} left {:?}", done.load(Relaxed)/2, most.load(Relaxed), s.available_permits().await);
        }}
        let (s, o) = (client.concurrency_with("r", SemaphoreOptions::new().permits(2).lease(Duration::from_millis(600))).unwrap(), client.concurrency("r").unwrap());
        let p = s.acquire(2).await.unwrap();
        for _ in 0..10 { tokio::time::sleep(Duration::from_millis(200)).await; assert!(!p.is_lost()); assert!(o.try_acquire_now(1).await.unwrap().is_err()); }
        let b = Instant::now();
        let w = o.acquire(1);
        let t = async { tokio::time::sleep(Duration::from_millis(300)).await; drop(p); Instant::now() };
        let (w, t) = tokio::join!(w, t);
        println!("waited {:?}, {:?} after the drop", b.elapsed(), t.elapsed());
        let w = w.unwrap();
        o.delete().await.unwrap();
        let b = Instant::now();
        drop(w);
        let p = s.acquire(1).await.unwrap();
        s.delete().await.unwrap();
        p.lost().await;
        println!("lost after {:?} {:?}", b.elapsed(), p);
    });
}
