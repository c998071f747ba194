// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

// flakesVariable is the environment variable with the path of a file. If it is set, a spec that fails is run once more,
// and if it then passes, its name and its failure are added to the file. Ginkgo's own flag is not enough: go test
// passes it to packages without specs as well, and prints nothing of packages that pass.
const flakesVariable = "FLAKES"

// longLabel marks specs that take minutes. They run only with a label filter, as in make test-long.
const longLabel = "long"

// RunSuite runs the specs of a package, with the defaults of all suites.
func RunSuite(t *testing.T, description string) {
	RegisterFailHandler(Fail)
	SetDefaults()
	suite, reporter := GinkgoConfiguration()
	if suite.LabelFilter == "" {
		suite.LabelFilter = "!" + longLabel
	}
	if path, found := os.LookupEnv(flakesVariable); found {
		suite.FlakeAttempts = 2
		ReportAfterSuite("lists the specs that passed only at the second attempt", func(report Report) {
			Expect(appendFlakes(path, report)).To(Succeed())
		})
	}
	RunSpecs(t, description, suite, reporter)
}

func appendFlakes(path string, report Report) error {
	var flakes strings.Builder
	for _, spec := range report.SpecReports {
		if spec.NumAttempts <= 1 || !spec.State.Is(types.SpecStatePassed) {
			continue
		}
		fmt.Fprintf(&flakes, "%s: %s\n", spec.LeafNodeLocation, spec.FullText())
		for _, failure := range spec.AdditionalFailures {
			fmt.Fprintf(&flakes, "  %s: %s\n", failure.Failure.Location, failure.Failure.Message)
		}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(flakes.String()) // One write, because suites run concurrently.
	return errors.Join(err, file.Close())
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
