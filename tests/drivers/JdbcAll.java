import java.sql.*;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** pgjdbc through the proxy: batches, fetch size, generated keys, copy, cancel, simple query mode. */
public class JdbcAll {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        for (String mode : new String[] {"extended", "simple", "extendedForPrepared", "extendedCacheEverything"}) {
            Properties properties = new Properties();
            properties.setProperty("user", "postgres");
            properties.setProperty("preferQueryMode", mode);
            properties.setProperty("prepareThreshold", "2");
            try (Connection connection = DriverManager.getConnection(url, properties)) {
                run(connection);
            }
        }
        System.out.println("ok");
    }

    static void run(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("drop table if exists j");
            statement.execute("create table j(a serial primary key, b text)");
        }
        connection.setAutoCommit(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        try (PreparedStatement insert =
                connection.prepareStatement("insert into j(b) values (?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 300; i++) {
                insert.setString(1, "row " + i);
                insert.addBatch();
            }
            check(insert.executeBatch().length == 300);
        }
        connection.commit();
        try (PreparedStatement select = connection.prepareStatement("select a from j where a > ? order by a")) {
            select.setFetchSize(50);
            select.setInt(1, 0);
            int count = 0;
            try (ResultSet rows = select.executeQuery()) {
                while (rows.next()) count++;
            }
            check(count == 300);
        }
        Savepoint savepoint = connection.setSavepoint();
        try (Statement statement = connection.createStatement()) {
            statement.execute("select 1/0");
            throw new AssertionError("no error");
        } catch (SQLException error) {
            check(error.getSQLState().equals("22012"));
        }
        connection.rollback(savepoint);
        connection.commit();
        connection.setAutoCommit(true);
        CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
        check(copy.copyIn("copy j(b) from stdin", new java.io.StringReader("x\ny\n")) == 2);
        check(isCancelled(connection));
    }

    /** The driver cancels once only: where the statement has not begun by then, it is tried again. */
    static boolean isCancelled(Connection connection) throws SQLException {
        for (int attempt = 0; attempt < 10; attempt++) {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(1);
                statement.execute("select pg_sleep(20)");
            } catch (SQLException error) {
                check(error.getSQLState().equals("57014"));
                return true;
            }
        }
        return false;
    }

    static void check(boolean holds) {
        if (!holds) throw new AssertionError();
    }
}
