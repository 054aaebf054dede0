use super::*;
use crate::entry::Entry;
use crate::server::Server;

/// A limiter of 10 per second with a grant of 4 by each of `clients`.
async fn fill(server: &Server, name: &str, clients: &[Option<&str>]) {
    let keys = Keys::new(name);
    let mut c = server.connect().await;
    let mut pipe = redis::pipe();
    let fields = [("rate", "10"), ("interval", "1000"), ("type", "0")];
    pipe.hset_multiple(keys.hash(), &fields);
    for client in clients {
        pipe.set(keys.value(*client), 6);
        let member = Entry::encode(&[1; 16], 4);
        pipe.zadd(keys.log(*client), member, 1_700_000_000_000u64);
    }
    let () = pipe.query_async(&mut c).await.unwrap();
}

#[tokio::test]
async fn a_limiter_is_shown_with_its_sums() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    fill(&server, "a*[b", &[None, Some("id-1")]).await;
    fill(&server, "a*[bc", &[Some("id-2")]).await;
    let dump = Dump::read(&mut c, "a*[b").await;
    assert_eq!(dump.budgets.len(), 2);
    assert_eq!(dump.client("id-1").unwrap().logged(), 4);
    let text = dump.to_string();
    assert!(text.contains("interval=1000 rate=10 type=0"), "{text}");
    assert!(text.contains("{a*[b}:permits:id-1"), "{text}");
    assert!(text.contains("1700000000000  4 permits, id[16] 0101"), "{text}");
    assert_eq!(text.matches("value 6 + log 4 = 10, = the rate").count(), 2);
}

#[tokio::test]
async fn damage_is_reported() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    fill(&server, "x", &[None]).await;
    let () = redis::pipe()
        .set("{x}:value", 9)
        .zadd("{x}:permits", &b"12345678"[..], 5)
        .query_async(&mut c)
        .await
        .unwrap();
    let text = Dump::read(&mut c, "x").await.to_string();
    assert!(text.contains("EXCEEDS the rate 10 by 3"), "{text}");
    assert!(text.contains("FOREIGN (Redisson 3.13.3-3.16.3), 8 bytes"), "{text}");
    let () = redis::pipe().del("x").lpush("x", 1).query_async(&mut c).await.unwrap();
    let text = Dump::read(&mut c, "x").await.to_string();
    assert!(text.contains("(a list)"), "{text}");
}

#[tokio::test]
async fn equal_limiters_do_not_differ() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    fill(&server, "a", &[None, Some("id-1")]).await;
    fill(&server, "b{1}", &[None, Some("id-2")]).await;
    let (a, b) = (Dump::read(&mut c, "a").await, Dump::read(&mut c, "b{1}").await);
    assert_eq!(a.diff(&b), [""; 0]);
}

#[tokio::test]
async fn every_difference_is_reported() {
    let server = Server::start().await;
    let mut c = server.connect().await;
    fill(&server, "a", &[None]).await;
    let a = Dump::read(&mut c, "a").await;
    let cases: [(&str, &[&str]); 6] = [
        ("hash: ", &["HSET", "b", "rate", "11"]),
        ("hash ttl: -1 | ", &["PEXPIRE", "b", "60000"]),
        ("OVERALL value: 6 | 7", &["SET", "{b}:value", "7"]),
        ("OVERALL value ttl: -1 | ", &["PEXPIRE", "{b}:value", "60000"]),
        ("OVERALL log: 4 (id of 16) | ", &["ZADD", "{b}:permits", "1", "x"]),
        ("clients: 0 | 1", &["SET", "{b}:value:id", "1"]),
    ];
    for (line, command) in cases {
        server.run::<()>(redis::cmd("DEL").arg(&["b", "{b}:value", "{b}:permits"]).take()).await;
        fill(&server, "b", &[None]).await;
        let () = server.run(redis::cmd(command[0]).arg(&command[1..]).take()).await;
        let diff = a.diff(&Dump::read(&mut c, "b").await);
        assert_eq!(diff.len(), 1, "{command:?}: {diff:?}");
        assert!(diff[0].starts_with(line), "{diff:?}");
    }
}
