package compat.peer;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;

/**
 * Writes lines to standard output from a thread of its own, so that a slow
 * reader never blocks a thread of Redisson's.
 */
final class Replies {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final String END = new String("end");

    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Thread writer = new Thread(this::write, "replies");

    Replies() {
        writer.setDaemon(true);
        writer.start();
    }

    void result(JsonElement id, JsonElement result) {
        JsonObject reply = new JsonObject();
        reply.add("id", id);
        reply.add("result", result == null ? JsonNull.INSTANCE : result);
        send(reply);
    }

    void error(JsonElement id, String kind, String message) {
        JsonObject error = new JsonObject();
        error.addProperty("kind", kind);
        error.addProperty("message", message);
        JsonObject reply = new JsonObject();
        reply.add("id", id);
        reply.add("error", error);
        send(reply);
    }

    void send(JsonObject line) {
        lines.add(GSON.toJson(line) + "\n");
    }

    /** Writes everything that was sent so far, and ends. */
    void close() throws InterruptedException {
        lines.add(END);
        writer.join();
    }

    @SuppressWarnings("StringEquality")
    private void write() {
        try (OutputStream out = new java.io.BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16)) {
            while (true) {
                String line = lines.poll();
                if (line == null) {
                    out.flush();
                    line = lines.take();
                }
                if (line == END) {
                    return;
                }
                out.write(line.getBytes(StandardCharsets.UTF_8));
            }
        } catch (IOException e) {
            System.err.println("java-peer: nobody reads the replies: " + e.getMessage());
            System.exit(1);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
