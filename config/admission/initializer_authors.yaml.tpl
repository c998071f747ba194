# Requires that a user who confines a ServiceAccount as the subject of an initializer is allowed to impersonate it. Otherwise,
# users who can write configurations could stop every controller outside kube-system: a confined subject can write only
# to namespaces that wait for its initializers.
# Unlike template-authors, it has no parameter, so that configurations can be written immediately after an installation.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: initializer-authors
  labels:
    nslifecycle.dev/policy: initializer-authors
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ["nslifecycle.dev"]
      apiVersions: ["*"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaceinitializerconfigurations"]
      scope: Cluster
  matchConditions:
  - name: initializers-have-changed
    expression: "oldObject == null || object.?initializers != oldObject.?initializers"
  variables:
  # The confined subjects of the new and of the old object, as NAMESPACE:NAME. No part contains a colon; a comma, which no
  # ServiceAccount has in its name, is an error below.
  - name: confined
    expression: >-
      {{include "confinedSubjects" "configuration" "object"}}
  - name: oldConfined
    expression: >-
      oldObject == null ? [] : {{include "confinedSubjects" "configuration" "oldObject"}}
  # With more comparisons, the expression would exceed its CEL budget. All subjects are new then, or too many.
  - name: added
    expression: >-
      (variables.confined.size() > 128 ? [] :
       variables.oldConfined.size() > 128 ? variables.confined :
       variables.confined.filter(s, !(s in variables.oldConfined))).map(s, s.split(':'))
  validations:
  - expression: "variables.confined.size() <= 128 && variables.added.size() <= 16"
    reason: Invalid
    message: >-
      one NamespaceInitializerConfiguration can have at most 128 confined subjects, and one request can add at most 16
  # Each check has its own CEL budget.
{{- range $i := 16}}
  - expression: >-
      variables.added.size() <= {{$i}} || {{include "mayImpersonate" "namespace" (printf "variables.added[%d][0]" $i) "name" (printf "variables.added[%d][1]" $i)}}
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to impersonate ServiceAccount "' + variables.added[{{$i}}].join('/')
      + '", which NamespaceInitializerConfiguration "' + object.metadata.?name.orValue('') + '" confines'
{{- end}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: initializer-authors
  labels:
    nslifecycle.dev/policy: initializer-authors
spec:
  policyName: initializer-authors
  validationActions: ["Deny"]
