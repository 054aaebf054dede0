package compat.peer;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Files in PEM format as the key stores that every release of Redisson reads. They are in temporary files that
 * end with the process.
 */
final class Certificates {
    /** Of the key stores: their content is in other files without one. */
    static final String PASSWORD = "password";

    private static final Pattern KEY = Pattern.compile(
        "-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", Pattern.DOTALL);

    private Certificates() {
    }

    /** The authorities to trust. */
    static URL truststore(Path authorities) {
        return stored(authorities, store -> {
            int number = 0;
            for (Certificate certificate : certificates(authorities)) {
                store.setCertificateEntry("ca" + number++, certificate);
            }
        });
    }

    /** This client's certificate with those that signed it, and its key. */
    static URL keystore(Path chain, Path key) {
        return stored(key, store ->
            store.setKeyEntry("client", privateKey(key), PASSWORD.toCharArray(),
                certificates(chain).toArray(Certificate[]::new)));
    }

    private interface Filling {
        void into(KeyStore store) throws GeneralSecurityException, IOException;
    }

    private static URL stored(Path source, Filling filling) {
        try {
            KeyStore store = KeyStore.getInstance("PKCS12");
            store.load(null, null);
            filling.into(store);
            Path file = Files.createTempFile("java-peer-", ".p12");
            file.toFile().deleteOnExit();
            try (OutputStream out = Files.newOutputStream(file)) {
                store.store(out, PASSWORD.toCharArray());
            }
            return file.toUri().toURL();
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException(source + ": " + e, e);
        }
    }

    private static Collection<? extends Certificate> certificates(Path file)
            throws GeneralSecurityException, IOException {
        try (InputStream in = Files.newInputStream(file)) {
            Collection<? extends Certificate> found = CertificateFactory.getInstance("X.509").generateCertificates(in);
            if (found.isEmpty()) {
                throw new IllegalArgumentException(file + ": no certificate in PEM format");
            }
            return found;
        }
    }

    private static PrivateKey privateKey(Path file) throws GeneralSecurityException, IOException {
        Matcher pem = KEY.matcher(Files.readString(file));
        if (!pem.find()) {
            throw new IllegalArgumentException(
                file + ": no key in PEM format, PKCS #8; openssl pkcs8 -topk8 -nocrypt makes one of others");
        }
        PKCS8EncodedKeySpec encoded = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1)));
        for (String algorithm : List.of("EC", "RSA", "Ed25519")) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(encoded);
            } catch (InvalidKeySpecException e) {
                // the next one
            }
        }
        throw new IllegalArgumentException(file + ": neither an EC nor an RSA nor an Ed25519 key");
    }
}
