//! Remote webhooks over TLS as stages.
