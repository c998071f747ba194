# Warns a user who sets a parameter that no template of the namespace has: it has no effect. In a request that creates a
# namespace with a template, the templates policy denies it.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: unused-parameters
  labels:
    nslifecycle.dev/policy: unused-parameters
spec:
  # A warning must not prevent a request.
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces"]
      scope: "*"
  # One cheap condition: the API server evaluates all conditions.
  matchConditions:
  - name: has-new-parameters
    expression: >-
      object.metadata.?annotations.orValue({}).exists(k, k.startsWith('parameter.nslifecycle.dev/') &&
        (oldObject == null || !(k in oldObject.metadata.?annotations.orValue({})))) &&
      !({{include "isExempt"}})
  variables:
  - name: labels
    expression: "object.metadata.?labels.orValue({})"
  - name: added
    expression: >-
      object.metadata.annotations.filter(k, k.startsWith('parameter.nslifecycle.dev/') &&
        (oldObject == null || !(k in oldObject.metadata.?annotations.orValue({}))))
  - name: declared
    expression: >-
      params.?templates.orValue([]).filter(t,
        variables.labels[?'nslifecycle.dev/template'].orValue('') == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.labels" "isUnnamed" ""}})
      .map(t, t.?parameters.orValue([]).filter(p, !has(p.labelKey)).map(p, 'parameter.nslifecycle.dev/' + p.name))
  - name: unused
    expression: >-
      variables.added.size() > 128 ? [] : variables.added.filter(k, !variables.declared.exists(names, k in names))
  validations:
  - expression: "variables.unused.size() == 0"
    messageExpression: >-
      'annotation ' + variables.unused[0] + ': no template that selects the namespace has this parameter'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: unused-parameters
  labels:
    nslifecycle.dev/policy: unused-parameters
spec:
  policyName: unused-parameters
  validationActions: ["Warn"]
  # Without a set, the operator has not started.
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
