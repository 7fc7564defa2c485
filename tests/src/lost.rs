//! Real traffic with a real anomaly: an update that READ COMMITTED loses, legally.

use tokio_postgres::{Client, NoTls};

/// The table, then the update that is lost, on a runtime of their own.
pub fn both(uri: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        prepare(uri).await;
        update(uri).await;
    });
}

pub async fn connect(uri: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(uri, NoTls)
        .await
        .expect("the proxy lets us in");
    tokio::spawn(connection);
    client
}

/// Makes the table; on a connection of its own, so that the audit knows it is finished.
pub async fn prepare(uri: &str) {
    let client = connect(uri).await;
    client
        .batch_execute(
            "create table account (id int primary key, balance int); insert into account values (1, 100)",
        )
        .await
        .expect("a table");
}

/// Two clients read one balance and each writes it back. Returns when the second COMMIT is answered.
pub async fn update(uri: &str) {
    let (one, two) = (connect(uri).await, connect(uri).await);
    for client in [&one, &two] {
        client
            .batch_execute("begin isolation level read committed")
            .await
            .expect("begin");
        let row = client
            .query_one("select balance from account where id = $1", &[&1i32])
            .await
            .expect("a row");
        assert_eq!(row.get::<_, i32>(0), 100);
    }
    for (client, balance) in [(&one, 110i32), (&two, 120)] {
        let sql = "update account set balance = $1 where id = $2";
        assert_eq!(
            client.execute(sql, &[&balance, &1i32]).await.expect("an update"),
            1
        );
        client.batch_execute("commit").await.expect("commit");
    }
}
