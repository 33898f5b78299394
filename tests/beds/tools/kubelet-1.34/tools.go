//go:build tools

// Package tools pins the older kubelet of the node tests.
package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
