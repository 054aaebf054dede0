package compat.peer;

import java.net.URI;

/** The command line: the server, and the prefix of every name. */
record Options(URI redis, String keyPrefix) {
    static final String USAGE = "usage: java-peer --redis redis://[[user]:password@]host:port[/db] [--key-prefix PREFIX]";

    static Options parse(String[] args) {
        URI redis = null;
        String keyPrefix = "";
        for (int i = 0; i < args.length; i += 2) {
            if (i + 1 == args.length) {
                throw new IllegalArgumentException(args[i] + ": no value");
            }
            switch (args[i]) {
                case "--redis" -> redis = server(args[i + 1]);
                case "--key-prefix" -> keyPrefix = args[i + 1];
                default -> throw new IllegalArgumentException(args[i] + ": not an option of this peer");
            }
        }
        if (redis == null) {
            throw new IllegalArgumentException("--redis is missing");
        }
        return new Options(redis, keyPrefix);
    }

    String address() {
        return redis.getScheme() + "://" + redis.getHost() + ":" + redis.getPort();
    }

    /** Null if the address names none. */
    String user() {
        String info = redis.getUserInfo();
        int colon = info == null ? -1 : info.indexOf(':');
        return colon > 0 ? info.substring(0, colon) : null;
    }

    /** Null if the address has none. */
    String password() {
        String info = redis.getUserInfo();
        return info == null ? null : info.substring(info.indexOf(':') + 1);
    }

    int database() {
        String path = redis.getPath();
        return path == null || path.length() < 2 ? 0 : Integer.parseInt(path.substring(1));
    }

    private static URI server(String address) {
        URI uri = URI.create(address);
        boolean scheme = "redis".equals(uri.getScheme()) || "rediss".equals(uri.getScheme());
        if (!scheme || uri.getHost() == null || uri.getPort() < 0) {
            throw new IllegalArgumentException("--redis: not of the form redis://host:port");
        }
        return uri;
    }
}
