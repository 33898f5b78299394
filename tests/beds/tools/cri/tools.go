//go:build tools

// Package tools pins crictl and critest, the clients of the conformance tests.
package tools

import (
	_ "sigs.k8s.io/cri-tools/cmd/crictl"
	// critest is the test binary of cmd/critest; these are what it imports.
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
