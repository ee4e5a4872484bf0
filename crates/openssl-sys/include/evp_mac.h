// OpenSSL 3's EVP_MAC and OSSL_PARAM over AWS-LC's HMAC, as far as SQLCipher uses them: one-shot HMAC with SHA-1, SHA-256
// or SHA-512. Every function fails closed: an unknown algorithm or digest is an error, never a weaker result.

#ifndef TRIBUNE_EVP_MAC_H
#define TRIBUNE_EVP_MAC_H

#include <openssl/hmac.h>
#include <string.h>

typedef struct {
  const char *key;
  unsigned int data_type;
  const void *data;
  size_t data_size;
  size_t return_size;
} OSSL_PARAM;

#define OSSL_PARAM_UTF8_STRING 4
#define OSSL_PARAM_END { NULL, 0, NULL, 0, 0 }

typedef struct {
  int unused;
} EVP_MAC;

typedef HMAC_CTX EVP_MAC_CTX;

static inline EVP_MAC *EVP_MAC_fetch(void *library, const char *algorithm, const char *properties) {
  static EVP_MAC hmac;
  return library == NULL && properties == NULL && strcmp(algorithm, "HMAC") == 0 ? &hmac : NULL;
}

static inline void EVP_MAC_free(EVP_MAC *mac) { (void)mac; }

static inline EVP_MAC_CTX *EVP_MAC_CTX_new(EVP_MAC *mac) { return mac == NULL ? NULL : HMAC_CTX_new(); }

static inline void EVP_MAC_CTX_free(EVP_MAC_CTX *ctx) { HMAC_CTX_free(ctx); }

static inline int EVP_MAC_init(EVP_MAC_CTX *ctx, const unsigned char *key, size_t key_size, const OSSL_PARAM params[]) {
  if (params[0].key == NULL || strcmp(params[0].key, "digest") != 0 || params[1].key != NULL) return 0;
  const char *name = params[0].data;
  const EVP_MD *digest = strcmp(name, "sha1") == 0     ? EVP_sha1()
                         : strcmp(name, "sha256") == 0 ? EVP_sha256()
                         : strcmp(name, "sha512") == 0 ? EVP_sha512()
                                                       : NULL;
  return digest != NULL && HMAC_Init_ex(ctx, key, key_size, digest, NULL);
}

static inline int EVP_MAC_update(EVP_MAC_CTX *ctx, const unsigned char *data, size_t size) {
  return HMAC_Update(ctx, data, size);
}

// With `out` NULL it only says how many bytes there will be.
static inline int EVP_MAC_final(EVP_MAC_CTX *ctx, unsigned char *out, size_t *out_size, size_t capacity) {
  *out_size = HMAC_size(ctx);
  if (out == NULL) return 1;
  unsigned int written = 0;
  if (capacity < *out_size || !HMAC_Final(ctx, out, &written)) return 0;
  *out_size = written;
  return 1;
}

#endif
