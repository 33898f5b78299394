//! The API server of Kubernetes, as the product's programs use it.
