use super::*;

#[tokio::test]
async fn a_server_restarts_empty_on_its_port() {
    let server = Server::start().await;
    let () = server.run(redis::cmd("SET").arg("k").arg(1).take()).await;
    server.kill();
    assert!(server.try_connect().await.is_err());
    server.restart().await;
    let left: Option<String> = server.run(redis::cmd("GET").arg("k").take()).await;
    assert_eq!(left, None);
    server.stop();
    assert!(server.try_connect().await.is_err());
}

#[tokio::test]
async fn a_password_is_required() {
    let server = Server::start_with(Options::default().password("secret")).await;
    let pong: String = server.run(redis::cmd("PING")).await;
    assert_eq!(pong, "PONG");
    let open = format!("redis://127.0.0.1:{}", server.port());
    let refused = match connect(&open).await {
        Ok(mut c) => redis::cmd("PING").query_async::<String>(&mut c).await.err(),
        Err(e) => Some(e),
    };
    assert!(refused.unwrap().to_string().contains("NOAUTH"));
}

#[tokio::test]
async fn a_paused_server_answers_after_it_resumes() {
    let server = Server::start().await;
    let mut connection = server.connect().await;
    server.pause();
    let ping = redis::cmd("PING");
    let call = ping.query_async::<String>(&mut connection);
    tokio::pin!(call);
    let early = tokio::time::timeout(Duration::from_millis(100), &mut call).await;
    assert!(early.is_err());
    server.resume();
    assert_eq!(call.await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let options = Options::default().survive_full_disk().set("appendonly", "yes");
    let server = Server::start_with(options).await;
    let set = || redis::cmd("SET").arg("k").arg("x".repeat(1000)).take();
    let () = server.run(set()).await;
    server.limit_files(Some(1_500));
    let mut connection = server.connect().await;
    let mut refused = false;
    for _ in 0..500 {
        let answer: redis::RedisResult<()> = set().query_async(&mut connection).await;
        refused |= answer.is_err_and(|e| e.to_string().contains("MISCONF"));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(refused);
    server.limit_files(None);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let () = server.run(set()).await;
}
