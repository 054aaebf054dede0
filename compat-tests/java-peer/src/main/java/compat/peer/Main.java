package compat.peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

import com.google.gson.JsonObject;
import org.redisson.api.RedissonClient;

/**
 * A process that owns one Redisson client and runs the rate-limiter calls that
 * it reads: JSON lines in, JSON lines out, until standard input closes.
 */
public final class Main {
    /** How long running calls get after the end of the input, so that piped lines are answered. */
    private static final long LAST_REPLIES_MS = 500;

    private Main() {
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        Options options;
        try {
            options = Options.parse(args);
        } catch (IllegalArgumentException e) {
            System.err.println("java-peer: " + e.getMessage());
            System.err.println(Options.USAGE);
            System.exit(2);
            return;
        }

        RedissonClient client;
        try {
            client = Client.connect(options);
        } catch (RuntimeException e) {
            System.err.println("java-peer: cannot connect: " + Failure.chain(e));
            System.exit(1);
            return;
        }

        Replies replies = new Replies();
        replies.send(ready(client));

        Dispatcher dispatcher = new Dispatcher(client, replies);
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8), 1 << 16);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            dispatcher.line(line);
        }

        dispatcher.awaitIdle(LAST_REPLIES_MS);
        replies.close();
        // Redisson's own shutdown takes seconds; the sockets close with the process.
        System.exit(0);
    }

    private static JsonObject ready(RedissonClient client) throws IOException {
        JsonObject ready = new JsonObject();
        ready.addProperty("ready", true);
        ready.addProperty("clientId", client.getId());
        ready.addProperty("version", redissonVersion());
        return ready;
    }

    /** The release that is actually on the class path, according to its jar. */
    private static String redissonVersion() throws IOException {
        String path = "/META-INF/maven/org.redisson/redisson/pom.properties";
        try (InputStream in = RedissonClient.class.getResourceAsStream(path)) {
            if (in == null) {
                return "unknown";
            }
            Properties properties = new Properties();
            properties.load(in);
            return properties.getProperty("version", "unknown");
        }
    }
}
