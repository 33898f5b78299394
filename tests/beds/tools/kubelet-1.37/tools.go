//go:build tools

// Package tools pins the kubelet that the node tests run.
package tools

import _ "k8s.io/kubernetes/cmd/kubelet"
