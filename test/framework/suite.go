// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"hash/fnv"
	"math/rand/v2"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

// RunSuite runs the specs of a package, with the defaults of all suites.
func RunSuite(t *testing.T, description string) {
	RegisterFailHandler(Fail)
	SetDefaults()
	RunSpecs(t, description)
}

// NewRandom returns a source of random numbers that depends on the seed and on the name of the spec.
func NewRandom() *rand.Rand {
	name := fnv.New64()
	_, _ = name.Write([]byte(CurrentSpecReport().FullText()))
	return rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), name.Sum64()))
}

// ExpectNoLeaks fails the suite if goroutines remain at its end, for example of a manager that was stopped. It
// must be called before functions that call DeferCleanup, which then run before the check.
func ExpectNoLeaks() {
	const (
		ginkgo = "github.com/onsi/ginkgo/v2/internal."
		caches = "sigs.k8s.io/controller-runtime/pkg/cache."
		// The rotator waits without a context for a file and for the configurations of the webhooks.
		rotator = "github.com/open-policy-agent/cert-controller/pkg/rotator.(*CertRotator)."
	)
	options := []goleak.Option{
		goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction(ginkgo + "(*genericOutputInterceptor).ResumeIntercepting.func1"),
		goleak.IgnoreAnyFunction(ginkgo + "(*genericOutputInterceptor).ResumeIntercepting.func1.1"),
		goleak.IgnoreAnyFunction(rotator + "ensureCertsMounted"),
		goleak.IgnoreAnyFunction(rotator + "ensureReady"),
		// An informer of metadata that is stopped while it receives an event:
		// https://github.com/kubernetes/kubernetes/issues/113254
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"),
		// A cache of several namespaces that is stopped before it has synced.
		goleak.IgnoreTopFunction(caches + "newMultiNamespaceInformer.func1"),
		goleak.IgnoreTopFunction(caches + "newMultiNamespaceInformerHandlerRegistration.func1"),
	}
	DeferCleanup(func() {
		Eventually(func() error { return goleak.Find(options...) }).Should(Succeed())
	})
}
