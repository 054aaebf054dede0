package compat.peer;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The command line: the servers, the prefix of every name, and files in PEM format for {@code rediss://}.
 *
 * @param ca null if the platform's authorities are trusted
 * @param cert null if there is no certificate of this client
 * @param key null if there is none
 */
record Options(Servers redis, String keyPrefix, Path ca, Path cert, Path key) {
    static final String USAGE = "usage: java-peer --redis redis://[[user]:password@]host[:port][/db] "
        + "| redis+cluster://[[user]:password@]host[:port][,host[:port]…] "
        + "| redis+sentinel://host[:port][,host[:port]…]/master [--key-prefix PREFIX] "
        + "[--ca FILE] [--cert FILE --key FILE], with rediss for TLS";

    static Options parse(String[] args) {
        Servers redis = null;
        String keyPrefix = "";
        Path ca = null;
        Path cert = null;
        Path key = null;
        for (int i = 0; i < args.length; i += 2) {
            if (i + 1 == args.length) {
                throw new IllegalArgumentException(args[i] + ": no value");
            }
            switch (args[i]) {
                case "--redis" -> redis = Servers.parse(args[i + 1]);
                case "--key-prefix" -> keyPrefix = args[i + 1];
                case "--ca" -> ca = Path.of(args[i + 1]);
                case "--cert" -> cert = Path.of(args[i + 1]);
                case "--key" -> key = Path.of(args[i + 1]);
                default -> throw new IllegalArgumentException(args[i] + ": not an option of this peer");
            }
        }
        if (redis == null) {
            throw new IllegalArgumentException("--redis is missing");
        }
        if ((cert == null) != (key == null)) {
            throw new IllegalArgumentException("--cert and --key belong together: one of them is missing");
        }
        if ((ca != null || cert != null) && !redis.scheme().equals("rediss")) {
            throw new IllegalArgumentException("--ca, --cert and --key need a rediss:// address");
        }
        return new Options(redis, keyPrefix, ca, cert, key);
    }

    /**
     * What {@code --redis} names.
     *
     * @param topology {@code cluster} or {@code sentinel}, or null for one server
     * @param user null if there is none
     * @param password null if there is none
     * @param path what follows the first slash behind the hosts, or null: a database, or the name of a master
     */
    record Servers(String scheme, String topology, String user, String password, List<String> hosts, String path) {
        private static final String HOST = "(?:\\[[^\\]/@,]+\\]|[^/@:,\\[\\]]+)(?::\\d+)?";
        private static final Pattern FORM = Pattern.compile("(rediss?)(?:\\+(cluster|sentinel))?://"
            + "(?:([^:@]*):([^@]*)@)?(" + HOST + "(?:," + HOST + ")*)(?:/(.*))?");

        static Servers parse(String address) {
            Matcher found = FORM.matcher(address);
            if (!found.matches()) {
                throw new IllegalArgumentException("--redis: not of the form redis://host[:port]");
            }
            String password = decoded(found.group(4));
            if (password != null && "sentinel".equals(found.group(2))) {
                throw new IllegalArgumentException("--redis: the address of sentinels has no credentials");
            }
            String user = password == null || found.group(3).isEmpty() ? null : decoded(found.group(3));
            return new Servers(found.group(1), found.group(2), user, password,
                Arrays.asList(found.group(5).split(",")), found.group(6));
        }

        /** Percent-decodes a text in which, unlike in forms, a plus sign stands for itself. */
        private static String decoded(String text) {
            return text == null ? null : URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        }

        /** Each server as Redisson takes it. */
        String[] addresses() {
            return hosts.stream()
                .map(host -> scheme + "://" + (host.matches(".*:\\d+") ? host : host + ":6379"))
                .toArray(String[]::new);
        }

        int database() {
            return path == null || path.isEmpty() ? 0 : Integer.parseInt(path);
        }
    }
}
