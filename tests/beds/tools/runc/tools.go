//go:build tools

// Package tools pins the low-level runtime under containerd 2.4.
package tools

import _ "github.com/opencontainers/runc"
