//go:build tools

// Package tools pins the API server of the cluster tests, and the kubectl that asks it.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
